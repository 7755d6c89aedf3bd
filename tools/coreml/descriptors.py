"""Writes the message types of Core ML packages as a FileDescriptorSet, for `cargo xtask proto`.

    python descriptors.py OUT

The wheel of coremltools has no .proto files, but its modules carry the descriptors made of them. Of Model.proto only what an ML Program
needs is kept: the fields named in KEPT, and what they reach.
"""

import importlib
import logging
import sys

logging.disable(logging.CRITICAL)

from google.protobuf import descriptor_pb2  # noqa: E402

KEPT = {
    "Model": {"specificationVersion", "description", "isUpdatable", "mlProgram"},
    "ModelDescription": {"metadata", "input", "output"},
    "FeatureType": {"multiArrayType", "isOptional"},
    "ArrayFeatureType": {"shape", "dataType"},
}
FILES = {"Model.proto", "FeatureTypes.proto", "MIL.proto"}


def collect(descriptor, found):
    """The files that `descriptor` needs, itself included, in an order in which dependencies come first."""
    if descriptor.name in found:
        return
    for dependency in descriptor.dependencies:
        collect(dependency, found)
    message = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(message)
    found[descriptor.name] = message


def keep_fields(message):
    """Leaves the fields that KEPT names, and the oneofs that still have any."""
    kept = [f for f in message.field if f.name in KEPT[message.name]]
    used = sorted({f.oneof_index for f in kept if f.HasField("oneof_index")})
    oneofs = [message.oneof_decl[i] for i in used]
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    kept = [descriptor_pb2.FieldDescriptorProto.FromString(f.SerializeToString()) for f in kept]
    oneofs = [descriptor_pb2.OneofDescriptorProto.FromString(o.SerializeToString()) for o in oneofs]
    del message.field[:], message.oneof_decl[:]
    message.field.extend(kept)
    message.oneof_decl.extend(oneofs)


def reached(files, root):
    """The full names of the messages that `root` mentions, itself included."""
    by_name = {}

    def index(prefix, message):
        by_name[f"{prefix}.{message.name}"] = message
        for nested in message.nested_type:
            index(f"{prefix}.{message.name}", nested)

    for file in files:
        for message in file.message_type:
            index(f".{file.package}", message)
    found, waiting = set(), [root]
    while waiting:
        name = waiting.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        waiting += [f.type_name for f in by_name[name].field if f.type_name]
        outer = name.rpartition(".")[0]
        waiting += [outer] if outer in by_name else []
    return found


def drop(owner, field, prefix, found):
    """Leaves the messages of `owner` that were reached."""
    messages = getattr(owner, field)
    kept = [m for m in messages if f"{prefix}.{m.name}" in found]
    kept = [descriptor_pb2.DescriptorProto.FromString(m.SerializeToString()) for m in kept]
    del messages[:]
    messages.extend(kept)
    for message in messages:
        drop(message, "nested_type", f"{prefix}.{message.name}", found)


def main(out):
    found = {}
    collect(importlib.import_module("coremltools.proto.Model_pb2").DESCRIPTOR, found)
    files = [f for name, f in found.items() if name in FILES]
    for file in files:
        for message in file.message_type:
            if message.name in KEPT:
                keep_fields(message)
    names = reached(files, ".CoreML.Specification.Model")
    for file in files:
        drop(file, "message_type", f".{file.package}", names)
        dependencies = [d for d in file.dependency if d in FILES]
        del file.dependency[:], file.public_dependency[:]
        file.dependency.extend(dependencies)
    with open(out, "wb") as target:
        target.write(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


main(sys.argv[1])
