"""Two reports or two traces -> what differs, and why."""
