"""The image: a base of Debian packages, the operator on top, in an archive that registries take.

No container engine runs, and no registry is asked: packages are fetched by apt and uv, checked by
the digests of their locks, and unpacked without running a script of theirs.
"""
