"""What both servers stand on: sockets, connections, bodies, request metrics."""
