"""A run over planes of devices can fail for a plane that did not come."""

from planes import FEW, PLANES, missing_planes


def test_a_plane_that_no_world_had_is_named():
    changing = PLANES["changing"]
    assert missing_planes(changing, {"cuda", "nccl", "staged"}, FEW, True) == ""
    assert missing_planes(changing, {"cuda"}, FEW, True) == "no World had plane nccl, staged"
    assert missing_planes(changing, {"cuda"}, FEW - 1, True) == "", "too few to tell"
    assert missing_planes(PLANES["cuda"], {"staged"}, 1, True) == "no World had plane cuda"


def test_without_kernels_all_gradients_go_through_the_host():
    for plane in PLANES.values():
        assert missing_planes(plane, {"staged"}, FEW, False) == ""
        assert missing_planes(plane, set(), 1, False) == "no World had plane staged"
