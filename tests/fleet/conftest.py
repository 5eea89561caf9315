"""Real sshds for the fleet's tests too."""

from tests.transport.conftest import free_port, login_key, own_home, sshd

__all__ = ["free_port", "login_key", "own_home", "sshd"]
