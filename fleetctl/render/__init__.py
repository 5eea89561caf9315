"""Profile to argv, files and systemd unit, as text."""
