"""Flag schemas of SGLang releases, one compressed JSON object a version (made by ``ship.py``)."""
