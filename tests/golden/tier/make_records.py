"""Writes records.json: encrypted records of the disk tier, made without Baton's code, from the description in
engine/kv/tier/record_cipher.h and record_cipher.cc.

    pip install cryptography   (records.json came from cryptography 48.0.0)
    python tests/golden/tier/make_records.py
"""

import hashlib
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PAGE = 4096
VERSION = 2


def numbers(name, count):
    """Bytes that follow from a name."""
    out = b""
    while len(out) < count:
        out += hashlib.sha256(f"{name} {len(out)}".encode()).digest()
    return out[:count]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def hkdf(key, salt, info, length):
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def record(name, block_bytes, before):
    key, identity, salt = numbers(f"{name} key", 32), numbers(f"{name} identity", 32), numbers(f"{name} salt", 32)
    block_hash, root = numbers(f"{name} hash", 16), numbers(f"{name} root", 16)
    sequence = 0x0102030405060708
    block = numbers(f"{name} block", block_bytes)
    clear = b"BATONKVE" + struct.pack("<I", VERSION) + identity + salt
    fields = block_hash + root + struct.pack("<Q", sequence)
    material = hkdf(key, salt, b"baton/kv/tier/2 block" + identity + root, 44)
    encrypted = AESGCM(material[:32]).encrypt(material[32:], block, clear + fields)
    material = hkdf(key, salt, b"baton/kv/tier/2 seal" + identity, 44)
    segment, slot = 0x1112131415161718, 0x21222324
    earlier = [(numbers(f"{name} earlier {i}", 16), 100 + i) for i in range(before)]
    surroundings = struct.pack("<QIH", segment, slot, before) + b"".join(digest + struct.pack("<Q", number) for digest, number in earlier)
    described = fields + encrypted[-16:] + surroundings
    described += bytes(PAGE - 4 - 16 - len(clear) - len(described))
    page = clear + AESGCM(material[:32]).encrypt(material[32:], described, clear)
    assert len(page) == PAGE - 4
    checksum = crc32c(page)
    return {
        "key": key.hex(),
        "key_id": hkdf(key, None, b"baton/kv/tier/2 id", 16).hex(),
        "identity": identity.hex(),
        "hash": block_hash.hex(),
        "root": root.hex(),
        "sequence": sequence,
        "segment": segment,
        "slot": slot,
        "earlier": [{"hash": digest.hex(), "sequence": number} for digest, number in earlier],
        "block": block.hex(),
        "encrypted_block": encrypted[:-16].hex(),
        "page": page.hex(),
        "page_crc": checksum,
    }


def main():
    records = [record("one", 64, 0), record("two", 100, 3), record("three", 1, 160)]
    text = json.dumps(records, indent=1)
    (pathlib.Path(__file__).parent / "records.json").write_text(text + "\n")


main()
