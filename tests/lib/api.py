# SPDX-License-Identifier: MIT
"""Calls agentboxd as a stranger would: grpcio and what the reflection service says, no .proto of ours.

    api = Api(daemon.socket)
    box = api.call("SandboxService.Create", template="base")
    for event in api.stream("CommandService.Run", sandbox=box.id, shell="echo hi"): …
"""
import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory

F = descriptor_pb2.FieldDescriptorProto


def _file(name, package, messages, imports=()):
    """A FileDescriptorProto from {message: [(field, number, type, repeated, type name)]}."""
    f = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=list(imports))
    for message, fields in messages.items():
        m = f.message_type.add(name=message)
        for field, number, kind, repeated, type_name in fields:
            m.field.add(name=field, number=number, type=kind, type_name=type_name or None,
                        label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    return f


# The public protocols that every gRPC peer knows, as far as they are needed here.
_REFLECTION = {
    "Request": [("file_by_filename", 3, F.TYPE_STRING, 0, ""), ("file_containing_symbol", 4, F.TYPE_STRING, 0, ""),
                ("list_services", 7, F.TYPE_STRING, 0, "")],
    "Files": [("file_descriptor_proto", 1, F.TYPE_BYTES, 1, "")],
    "Service": [("name", 1, F.TYPE_STRING, 0, "")],
    "Services": [("service", 1, F.TYPE_MESSAGE, 1, ".reflect.Service")],
    "Error": [("error_code", 1, F.TYPE_INT32, 0, ""), ("error_message", 2, F.TYPE_STRING, 0, "")],
    "Response": [("file_descriptor_response", 4, F.TYPE_MESSAGE, 0, ".reflect.Files"),
                 ("list_services_response", 6, F.TYPE_MESSAGE, 0, ".reflect.Services"),
                 ("error_response", 7, F.TYPE_MESSAGE, 0, ".reflect.Error")],
}
_RPC = {
    "Status": [("code", 1, F.TYPE_INT32, 0, ""), ("message", 2, F.TYPE_STRING, 0, ""),
               ("details", 3, F.TYPE_MESSAGE, 1, ".google.protobuf.Any")],
    "Pair": [("key", 1, F.TYPE_STRING, 0, ""), ("value", 2, F.TYPE_STRING, 0, "")],
    "ErrorInfo": [("reason", 1, F.TYPE_STRING, 0, ""), ("domain", 2, F.TYPE_STRING, 0, ""),
                  ("metadata", 3, F.TYPE_MESSAGE, 1, ".status.Pair")],
    "RetryInfo": [("retry_delay", 1, F.TYPE_MESSAGE, 0, ".google.protobuf.Duration")],
    "FieldViolation": [("field", 1, F.TYPE_STRING, 0, ""), ("description", 2, F.TYPE_STRING, 0, "")],
    "BadRequest": [("field_violations", 1, F.TYPE_MESSAGE, 1, ".status.FieldViolation")],
}
_pool = descriptor_pool.DescriptorPool()
for _f in (any_pb2, duration_pb2):
    _pool.AddSerializedFile(_f.DESCRIPTOR.serialized_pb)
_pool.Add(_file("reflect.proto", "reflect", _REFLECTION))
_pool.Add(_file("status.proto", "status", _RPC, ("google/protobuf/any.proto", "google/protobuf/duration.proto")))
_factory = message_factory.MessageFactory(_pool)


def _known(name):
    return _factory.GetPrototype(_pool.FindMessageTypeByName(name))


class ApiError(Exception):
    """A call that failed, with everything that the daemon said about it."""

    def __init__(self, error):
        self.code = error.code().name
        self.text = error.details() or ""
        self.reason, self.domain, self.metadata, self.retry_s, self.fields = "", "", {}, None, {}
        self.trailers = list(error.trailing_metadata() or ())
        for k, v in self.trailers:
            if k == "grpc-status-details-bin":
                self._details(v)
        Exception.__init__(self, "%s %s: %s %s" % (self.code, self.reason, self.text, self.metadata))

    def _details(self, data):
        status = _known("status.Status").FromString(data)
        for d in status.details:
            kind = d.type_url.rpartition("/")[2]
            if kind == "google.rpc.ErrorInfo":
                info = _known("status.ErrorInfo").FromString(d.value)
                self.reason, self.domain = info.reason, info.domain
                self.metadata = {p.key: p.value for p in info.metadata}
            elif kind == "google.rpc.RetryInfo":
                delay = _known("status.RetryInfo").FromString(d.value).retry_delay
                self.retry_s = delay.seconds + delay.nanos / 1e9
            elif kind == "google.rpc.BadRequest":
                for v in _known("status.BadRequest").FromString(d.value).field_violations:
                    self.fields[v.field] = v.description


def plain(field):
    """A map field as a dict; the containers of messages from a pool of one's own are no mappings."""
    return {k: field[k] for k in field}


class Stream:
    """The answers of a streaming call."""

    def __init__(self, call):
        self.call = call

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.call)
        except grpc.RpcError as e:
            raise ApiError(e) from None

    def cancel(self):
        self.call.cancel()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.cancel()


class Api:
    PACKAGE = "agentbox.v1."

    def __init__(self, socket_path, reflection="grpc.reflection.v1", options=(), like=None):
        """like: another one, whose descriptors are taken instead of asking again."""
        # a channel of its own each time: grpcio shares connections between equal channels otherwise
        self.channel = grpc.insecure_channel("unix:" + socket_path, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)] + list(options))
        self._reflect = self.channel.stream_stream(
            "/%s.ServerReflection/ServerReflectionInfo" % reflection,
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=_known("reflect.Response").FromString)
        self.pool = like.pool if like else descriptor_pool.DescriptorPool()
        self._files = like._files if like else set()
        self.factory = like.factory if like else message_factory.MessageFactory(self.pool)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # -- reflection

    def _ask(self, timeout=20, **request):
        reply = next(self._reflect(iter([_known("reflect.Request")(**request)]), timeout=timeout))
        if reply.HasField("error_response"):
            raise KeyError(reply.error_response.error_message)
        return reply

    def services(self):
        reply = self._ask(list_services="*")
        return sorted(s.name for s in reply.list_services_response.service)

    def _load(self, **request):
        for data in self._ask(**request).file_descriptor_response.file_descriptor_proto:
            f = descriptor_pb2.FileDescriptorProto.FromString(data)
            if f.name in self._files:
                continue
            for d in f.dependency:
                if d not in self._files:
                    self._load(file_by_filename=d)
            self._files.add(f.name)
            self.pool.Add(f)

    def service(self, name):
        full = name if name.startswith("grpc.") else self.PACKAGE + name
        try:
            return self.pool.FindServiceByName(full)
        except KeyError:
            self._load(file_containing_symbol=full)
            return self.pool.FindServiceByName(full)

    def message(self, name):
        """The class of a message, by its name in agentbox.v1 or by its full name."""
        for full in (self.PACKAGE + name, name):
            try:
                return self.factory.GetPrototype(self.pool.FindMessageTypeByName(full))
            except KeyError:
                continue
        self._load(file_containing_symbol=self.PACKAGE + name)
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(self.PACKAGE + name))

    # -- calls

    def build(self, cls, values):
        """A message from plain Python: dicts for messages and maps, lists, bytes, names of enum values, and seconds
        for a Duration."""
        m = cls()
        self._fill(m, values)
        return m

    def _fill(self, m, values):
        for k, v in values.items():
            if v is None:
                continue
            f = m.DESCRIPTOR.fields_by_name[k]
            if f.message_type and f.message_type.GetOptions().map_entry:
                value = f.message_type.fields_by_name["value"]
                for key, item in v.items():
                    if value.message_type:
                        self._fill(getattr(m, k)[key], item)
                    else:
                        getattr(m, k)[key] = item
            elif f.label == f.LABEL_REPEATED:
                for item in v:
                    if f.message_type:
                        self._fill(getattr(m, k).add(), item)
                    else:
                        getattr(m, k).append(self._scalar(f, item))
            elif f.message_type:
                sub = getattr(m, k)
                sub.SetInParent()
                if f.message_type.full_name == "google.protobuf.Duration" and not isinstance(v, dict):
                    sub.seconds = int(v)
                    sub.nanos = int(round((v - int(v)) * 1e9))
                elif isinstance(v, dict):
                    self._fill(sub, v)
                else:
                    sub.CopyFrom(v)
            else:
                setattr(m, k, self._scalar(f, v))

    @staticmethod
    def _scalar(f, v):
        return f.enum_type.values_by_name[v].number if f.enum_type and isinstance(v, str) else v

    def _method(self, name):
        service, method = name.split(".")[-2:]
        d = self.service(name.rpartition(".")[0]).methods_by_name[method]
        path = "/%s/%s" % (d.containing_service.full_name, method)
        return path, self.factory.GetPrototype(d.input_type), self.factory.GetPrototype(d.output_type)

    def call(self, method, /, timeout=30, header=None, **fields):
        """A unary call; returns its answer or raises ApiError."""
        path, request_cls, reply_cls = self._method(method)
        stub = self.channel.unary_unary(path, lambda m: m.SerializeToString(), reply_cls.FromString)
        try:
            return stub(self.build(request_cls, fields), timeout=timeout, metadata=header)
        except grpc.RpcError as e:
            raise ApiError(e) from None

    def future(self, method, /, timeout=30, **fields):
        """A unary call in flight; result() raises grpc.RpcError."""
        path, request_cls, reply_cls = self._method(method)
        stub = self.channel.unary_unary(path, lambda m: m.SerializeToString(), reply_cls.FromString)
        return stub.future(self.build(request_cls, fields), timeout=timeout)

    def stream(self, method, /, timeout=60, **fields):
        """A call with a stream of answers."""
        path, request_cls, reply_cls = self._method(method)
        stub = self.channel.unary_stream(path, lambda m: m.SerializeToString(), reply_cls.FromString)
        return Stream(stub(self.build(request_cls, fields), timeout=timeout))

    def send(self, method, requests, timeout=60):
        """A stream of requests (dicts) with one answer."""
        path, request_cls, reply_cls = self._method(method)
        stub = self.channel.stream_unary(path, lambda m: m.SerializeToString(), reply_cls.FromString)
        try:
            return stub((self.build(request_cls, r) for r in requests), timeout=timeout)
        except grpc.RpcError as e:
            raise ApiError(e) from None

    def both(self, method, requests, timeout=60):
        """Streams both ways."""
        path, request_cls, reply_cls = self._method(method)
        stub = self.channel.stream_stream(path, lambda m: m.SerializeToString(), reply_cls.FromString)
        return Stream(stub((self.build(request_cls, r) for r in requests), timeout=timeout))

    def raw(self, path, data, timeout=30, metadata=None):
        """Any bytes to any path."""
        stub = self.channel.unary_unary(path, lambda b: b, lambda b: b)
        try:
            return stub(data, timeout=timeout, metadata=metadata)
        except grpc.RpcError as e:
            raise ApiError(e) from None

    # -- what most tests want

    def run(self, sandbox, shell=None, argv=None, timeout=60, **fields):
        """Runs a command to its end: (CommandResult, stdout, stderr)."""
        if argv is not None:
            fields["argv"] = {"args": argv}
        else:
            fields["shell"] = shell
        out = {1: b"", 2: b"", 3: b""}
        result = None
        for e in self.stream("CommandService.Run", timeout=timeout, sandbox=sandbox, **fields):
            which = e.WhichOneof("event")
            if which == "output":
                out[e.output.stream] += e.output.data
            elif which == "exited":
                result = e.exited
        return result, out[1] + out[3], out[2]

    def write_file(self, sandbox, path, data, **header):
        def parts():
            yield {"header": dict(header, sandbox=sandbox, path=path)}
            for i in range(0, len(data), 1 << 16):
                yield {"data": data[i:i + (1 << 16)]}
        return self.send("FileService.Write", parts())

    def read_file(self, sandbox, path, **fields):
        data, end = b"", None
        for p in self.stream("FileService.Read", sandbox=sandbox, path=path, **fields):
            if p.WhichOneof("part") == "data":
                data += p.data
            elif p.WhichOneof("part") == "end":
                end = p.end
        assert end is not None, "no end after %d bytes" % len(data)
        return data
