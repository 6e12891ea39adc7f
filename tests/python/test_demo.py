"""examples/demo.py, with few epochs: the three events, their sentences, equal weights and the
picture. examples/demo_ps.py: an exact count."""

import re
import struct


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_a_kill_a_join_and_a_leave_change_no_bit(run_python, tmp_path):
    picture = tmp_path / "demo.png"
    script = ["--script", "tests/python/_held_digits.py", "--epochs", "6", "--deadline", "400"]
    output = run_python("examples/demo.py", "--output", str(picture), *script, timeout=900)
    in_order = (
        r"generation 1: the first 3 members are ready\n",
        r"\* kill -KILL \d+  \(member 1, stopped in the middle of step \d+: its state word says "
        r"open\)\n",
        r"generation 2: member 1 was lost.*: 3 -> 2 members\n",
        r"\* regroup resize 3\n",
        r"generation 3: member 3 .*: 2 -> 3 members\n",
        r"\* regroup notice 0\n",
        r"generation 4: member 0 .*: 3 -> 2 members\n",
        r"the weights are equal, bit for bit",
    )
    assert re.search(".*".join(in_order), output, re.DOTALL), output
    digests = re.findall(r"^weights .* ([0-9a-f]{64})$", output, re.MULTILINE)
    assert len(digests) == 2 and digests[0] == digests[1]
    data = picture.read_bytes()
    width, height = size_of(data)
    assert width >= 800 and height >= 600
    assert len(data) > 20_000  # two curves and their captions; an empty figure has less


def test_the_count_of_a_parameter_server_that_is_killed_is_exact(run_python):
    output = run_python("examples/demo_ps.py", "--deadline", "800", timeout=900)
    assert "3 servers killed; 720 pushes to the counter, counted [720, 720, 720]" in output, output
    assert "The count of updates is exact." in output
