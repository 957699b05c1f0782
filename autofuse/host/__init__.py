"""What this process may use of the machine it runs on, whatever the target."""
