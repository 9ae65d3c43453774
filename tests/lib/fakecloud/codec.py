# SPDX-License-Identifier: MIT
"""Connect RPC: the messages of the sandbox agent from the project's .proto files, in both codecs, and its errors."""
import base64
import gzip
import json
import os
import struct
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

PROTO = os.path.normpath(os.path.join(os.path.dirname(__file__), "../../../proto"))
HTTP_OF = {"canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404,
           "already_exists": 409, "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400,
           "aborted": 409, "out_of_range": 400, "unimplemented": 501, "internal": 500, "unavailable": 503,
           "data_loss": 500, "unauthenticated": 401}


class RpcError(Exception):
    def __init__(self, code, message=""):
        Exception.__init__(self, message)
        self.code, self.message = code, message

    def as_dict(self):
        return {"code": self.code, "message": self.message} if self.message else {"code": self.code}


class Messages:
    """Message classes by full name, e.g. messages["process.StartRequest"]."""

    def __init__(self):
        with tempfile.NamedTemporaryFile(suffix=".pb") as f:
            subprocess.run(["protoc", "-I", PROTO, "--include_imports", "--descriptor_set_out=" + f.name,
                            "envd/process.proto", "envd/filesystem.proto"], check=True)
            files = descriptor_pb2.FileDescriptorSet.FromString(f.read())
        self.pool = descriptor_pool.DescriptorPool()
        for d in files.file:
            self.pool.Add(d)
        self.factory = message_factory.MessageFactory(self.pool)

    def __getitem__(self, name):
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(name))

    def decode(self, name, data, is_json):
        cls = self[name]
        try:
            if is_json:
                obj = json.loads(data)
                if not isinstance(obj, dict):
                    raise ValueError("not an object")
                return json_format.ParseDict(obj, cls(), ignore_unknown_fields=True)
            return cls.FromString(data)
        except Exception as e:  # the protobuf library has no common base for them
            raise RpcError("invalid_argument", "cannot decode the message: %s" % e)

    @staticmethod
    def encode(message, is_json):
        if is_json:
            return json.dumps(json_format.MessageToDict(message), separators=(",", ":")).encode()
        return message.SerializeToString()


def envelope(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


def end_envelope(error=None, compressed=False):
    data = json.dumps({"error": error.as_dict()} if error else {}, separators=(",", ":")).encode()
    return envelope(gzip.compress(data), 3) if compressed else envelope(data, 2)


def envelopes(data):
    """[(flags, payload)] of a whole body; invalid_argument if it stops in the middle."""
    out = []
    while data:
        if len(data) < 5:
            raise RpcError("invalid_argument", "truncated envelope")
        flags, n = struct.unpack(">BI", data[:5])
        if len(data) < 5 + n:
            raise RpcError("invalid_argument", "truncated envelope")
        out.append((flags, data[5:5 + n]))
        data = data[5 + n:]
    return out


def basic_user(header):
    if not header or not header.lower().startswith("basic "):
        return None
    try:
        return base64.b64decode(header[6:].strip()).decode().partition(":")[0]
    except ValueError:
        return None
