"""Strangers at a port of a job: 300 that say nothing, some that speak rubbish, and one with its own
TLS."""

import subprocess

from hosts import Host

STRANGER = r"""
import socket, ssl, sys
address, port = sys.argv[1], int(sys.argv[2])
kept = []
for i in range(300):                                    # that say nothing, or a byte now and then
    s = socket.create_connection((address, port), 60)
    if i % 2: s.send(b"\x16")
    kept.append(s)
print("300 connected", flush=True)
hello = b"\x16\x03\x01\xff\xff" + b"A" * 65535
for junk in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 70000, bytes(range(256)) * 300, hello):
    s = socket.create_connection((address, port), 60)
    s.settimeout(10)
    try:
        s.sendall(junk)
        answer = s.recv(4096)
        print("junk answered with", len(answer), "bytes", answer[:1])
    except (ConnectionError, TimeoutError) as refused:
        print("junk refused:", type(refused).__name__)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
try:
    with socket.create_connection((address, port), 60) as s:
        s.settimeout(10)
        with context.wrap_socket(s) as t:
            t.recv(1)
    print("LET IN")
except (ssl.SSLError, ConnectionError, TimeoutError) as refused:
    print("TLS refused:", type(refused).__name__)
"""


def send(host: Host, address: str, port: int) -> subprocess.Popen:
    command = ["/usr/bin/python3", "-c", STRANGER, address, str(port)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return host.popen(command, text=True, **pipes)


def wait_connected(strangers: subprocess.Popen) -> None:
    """Until the 300 are connected: while more come, each closes an earlier connection, of others
    too."""
    first = strangers.stdout.readline()
    assert first == "300 connected\n", first + strangers.stderr.read()


def heard(strangers: subprocess.Popen) -> str:
    """What they say of their answers, once all have one."""
    with strangers:
        try:
            out, err = strangers.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            strangers.kill()
            raise
    return out + err


def expect_refused(strangers: subprocess.Popen) -> None:
    said = heard(strangers)
    assert strangers.returncode == 0, said
    assert "TLS refused" in said, said
    assert "LET IN" not in said, said
