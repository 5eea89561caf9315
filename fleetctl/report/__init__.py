"""Incidents and verdicts for people: text, issue, HTML."""
