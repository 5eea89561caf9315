"""Play the story that this computer can play."""

from __future__ import annotations

import os
import sys

from tests.demo import offline, story
from tests.demo.stage import main_guard

if sys.platform == "linux" and os.geteuid() == 0:
    sys.exit(main_guard(story.play))
print("demo: no root on Linux here, so no hosts can be made: this is the offline half")
sys.exit(main_guard(offline.play))
