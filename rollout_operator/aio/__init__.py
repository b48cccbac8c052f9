"""Small asyncio bricks that know nothing of Kubernetes."""
