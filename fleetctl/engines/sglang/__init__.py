"""What is known of SGLang per version: flags, endpoints, phases, probes."""
