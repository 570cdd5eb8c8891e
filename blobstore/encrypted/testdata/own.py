"""Our own form, written and read from its description in the package comment alone, with
the cryptography of OpenSSL: no line of Go was looked at for it to be right.

    python3 own.py make < jobs     prints the blobs, as hexadecimal in JSON
    python3 own.py open < blobs    prints the plaintexts
"""
import hashlib
import json
import os
import struct
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"agentrun-sealed\n"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def derive(passphrase, salt, passes, lanes, kib):
    out = Argon2id(salt=salt, length=48, iterations=passes, lanes=lanes, memory_cost=kib).derive(passphrase.encode())
    return AESGCM(out[:32]), out[32:]


def subkey(data_key, salt, version_flags_chunk):
    return AESGCM(HKDF(hashes.SHA256(), 32, salt, b"agentrun blob" + version_flags_chunk).derive(data_key))


def nonce(i, last):
    return bytes(3) + struct.pack(">QB", i, last)


def chunks(size, chunk):
    return max(1, -(-size // chunk))


def make(job):
    plain, salt, log = bytes.fromhex(job["plain"]), os.urandom(16), job["chunk_log"]
    wrapping, key_id = derive(job["passphrase"], salt, job["passes"], job["lanes"], job["kib"])
    head = MAGIC + bytes([1, 0, log, job["passes"], job["lanes"]]) + struct.pack(">I", job["kib"]) + salt + key_id
    assert len(head) == 57
    data_key, sub_salt, wrap_nonce = os.urandom(32), os.urandom(32), os.urandom(12)
    sub = subkey(data_key, sub_salt, head[16:19])
    ident = hashlib.sha256(plain).digest()
    head += wrap_nonce + wrapping.encrypt(wrap_nonce, data_key, head + sub_salt) + sub_salt
    assert len(head) == 149
    head += sub.encrypt(b"\x01" + bytes(11), ident + struct.pack(">Q", len(plain)), None)
    head += struct.pack(">I", crc32c(head))
    assert len(head) == 209
    n, size = chunks(len(plain), 1 << log), 1 << log
    body = b"".join(sub.encrypt(nonce(i, i == n - 1), plain[i * size:(i + 1) * size], ident) for i in range(n))
    return {"passphrase": job["passphrase"], "id": ident.hex(), "plain": job["plain"], "blob": (head + body).hex()}


def open_(job):
    blob = bytes.fromhex(job["blob"])
    assert blob[:16] == MAGIC and blob[16] == 1 and struct.unpack(">I", blob[205:209])[0] == crc32c(blob[:205])
    wrapping, key_id = derive(job["passphrase"], blob[25:41], blob[19], blob[20], struct.unpack(">I", blob[21:25])[0])
    assert key_id == blob[41:57]
    data_key = wrapping.decrypt(blob[57:69], blob[69:117], blob[:57] + blob[117:149])
    sub = subkey(data_key, blob[117:149], blob[16:19])
    known = sub.decrypt(b"\x01" + bytes(11), blob[149:205], None)
    ident, (size,), chunk = known[:32], struct.unpack(">Q", known[32:]), 1 << blob[18]
    n, rest, plain = chunks(size, chunk), blob[209:], b""
    for i in range(n):
        plain += sub.decrypt(nonce(i, i == n - 1), rest[:chunk + 16], ident)
        rest = rest[chunk + 16:]
    assert not rest and len(plain) == size and ident.hex() == job["id"]
    return {"passphrase": job["passphrase"], "id": job["id"], "plain": plain.hex(), "blob": job["blob"]}


jobs = json.load(sys.stdin)
print(json.dumps([{"make": make, "open": open_}[sys.argv[1]](job) for job in jobs], indent="\t"))
