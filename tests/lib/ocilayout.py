# SPDX-License-Identifier: MIT
"""Makes image layouts (oci-layout, index.json, blobs) by hand, so that they may be wrong in every way."""
import gzip
import hashlib
import io
import json
import os
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def entry(name, data=None, kind=None, **fields):
    """(TarInfo, data) of a file, or of what `kind` (tarfile's types) says."""
    t = tarfile.TarInfo(name)
    t.type = kind or tarfile.REGTYPE
    t.size = len(data or b"")
    t.mode = 0o755 if t.isdir() else 0o644
    for k, v in fields.items():
        setattr(t, k, v)
    return t, data or b""


def folder(name, **fields):
    return entry(name, kind=tarfile.DIRTYPE, **fields)


def symlink(name, to):
    return entry(name, kind=tarfile.SYMTYPE, linkname=to)


def hardlink(name, to):
    return entry(name, kind=tarfile.LNKTYPE, linkname=to)


def tar(*entries, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Layout:
    def __init__(self, path):
        self.path = path
        os.makedirs(os.path.join(path, "blobs", "sha256"))
        self.put("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())

    def put(self, name, data):
        with open(os.path.join(self.path, name), "wb") as f:
            f.write(data)

    def blob(self, data, media_type, **more):
        """Stores it; its descriptor."""
        self.put(os.path.join("blobs", *sha256(data).split(":")), data)
        return dict({"mediaType": media_type, "digest": sha256(data), "size": len(data)}, **more)

    def doc(self, o, media_type, **more):
        return self.blob(json.dumps(o).encode(), media_type, **more)

    def layer(self, data, pack=gzip.compress, suffix="+gzip"):
        """(descriptor, diff id)"""
        return self.blob(pack(data) if pack else data, LAYER + suffix if pack else LAYER), sha256(data)

    def manifest(self, layers, config=None, arch=ARCH, config_doc=None, **more):
        """The descriptor of the manifest of these layers (tars, or what layer() gave)."""
        pairs = [self.layer(v) if isinstance(v, bytes) else v for v in layers]
        doc = config_doc or {"architecture": arch, "os": "linux", "config": config or {},
                             "rootfs": {"type": "layers", "diff_ids": [d for _, d in pairs]}}
        return self.doc({"schemaVersion": 2, "mediaType": MANIFEST, "config": self.doc(doc, CONFIG), "layers": [v for v, _ in pairs]},
                        MANIFEST, **more)

    def index(self, *manifests):
        self.put("index.json", json.dumps({"schemaVersion": 2, "manifests": list(manifests)}).encode())
        return self


def image(path, *layers, **kw):
    """A layout with one image."""
    out = Layout(path)
    return out.index(out.manifest(layers, **kw))
