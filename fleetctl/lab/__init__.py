"""Disposable local hosts, and the replay engine."""
