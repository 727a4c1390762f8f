"""What ./ops/image-check does.

__main__.py   the steps, in order
buildah.py    a store of images of our own, and the stand-in for the base image
machine.py    what the build must know of this machine, marked so that it is found again where it must not be
layers.py     what lies in the layers that we add to the base
container.py  the image, running
jobs.py       jobs through a running service
"""
