"""Wanted and found, to a plan."""

from fleetctl.plan.deploy import plan_deploy, plan_stop

__all__ = ["plan_deploy", "plan_stop"]
