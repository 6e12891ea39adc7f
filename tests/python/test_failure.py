"""Where an exception that ends a member was raised: two with the same type and place are the same failure."""

import json
import re

from regroup._failure import place_of


def test_the_place_is_the_callers_line_and_that_of_a_library_beside_it():
    def place(call) -> str:
        try:
            call()
        except Exception as error:
            return place_of(error.__traceback__)
        return "nothing was raised"

    own, library = place(lambda: 1 / 0), place(lambda: json.loads("{"))
    assert re.fullmatch(r"\S*test_failure\.py:\d+", own), own
    assert re.fullmatch(r"\S*test_failure\.py:\d+, in json/decoder\.py:\d+", library), library
    assert place_of(None) == ""
