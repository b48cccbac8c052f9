"""What a release is made of, from one commit and with the same bytes each time.

Each module makes one thing; `python -m release` makes all of them. docs/release.md says what they
are and how to check and sign them. Nothing here runs in a cluster.
"""
