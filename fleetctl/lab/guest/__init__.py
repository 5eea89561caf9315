"""What runs inside the lab's hosts. Standard library only."""
