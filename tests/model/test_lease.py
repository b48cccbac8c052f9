"""Addresses of replicas, as the Lease has them: any client may have written them."""

import pytest

from rollout_operator.model.lease import read_address, render_address


@pytest.mark.parametrize(
    ("ip", "text"),
    [
        pytest.param("10.0.0.1", "10.0.0.1:8444", id="IPv4"),
        pytest.param("fd00::1", "[fd00::1]:8444", id="IPv6"),
        pytest.param("FD00:0:0::1", "[fd00::1]:8444", id="IPv6 in another form"),
    ],
)
def test_dep92_an_address_is_read_as_it_is_written(ip: str, text: str) -> None:
    assert render_address(ip, 8444) == text
    assert read_address(text) == text


@pytest.mark.parametrize(
    "ip",
    ["", "pod", "10.0.0", "010.0.0.1", "10.0.0.1/8", "fe80::1%eth0", "::", "224.0.0.1"],
)
def test_dep92_what_is_no_address_of_one_machine_is_none(ip: str) -> None:
    assert render_address(ip, 8444) == ""


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_dep92_without_a_port_there_is_no_address(port: int) -> None:
    assert render_address("10.0.0.1", port) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("10.0.0.1", id="no port"),
        pytest.param("10.0.0.1:", id="an empty port"),
        pytest.param("10.0.0.1:0", id="port 0"),
        pytest.param("10.0.0.1:08444", id="a port with a leading zero"),
        pytest.param("10.0.0.1:65536", id="too high a port"),
        pytest.param("10.0.0.1:+8444", id="a sign"),
        pytest.param("10.0.0.1:٨٤", id="digits of another script"),
        pytest.param("10.0.0.1:8444/metrics", id="a path"),
        pytest.param("10.0.0.1:8444?a=b", id="a query"),
        pytest.param("10.0.0.1:8444\n", id="a line end"),
        pytest.param(" 10.0.0.1:8444", id="a space"),
        pytest.param("user@10.0.0.1:8444", id="a user"),
        pytest.param("evil.example:8444", id="a name"),
        pytest.param("localhost:8444", id="another name"),
        pytest.param("2130706433:8444", id="an address as one number"),
        pytest.param("0x7f.0.0.1:8444", id="hexadecimal"),
        pytest.param("127.1:8444", id="an address cut short"),
        pytest.param("010.0.0.1:8444", id="octal"),
        pytest.param("0.0.0.0:8444", id="all addresses"),
        pytest.param("224.0.0.1:8444", id="a group of machines"),
        pytest.param("fd00::1:8444", id="IPv6 without brackets"),
        pytest.param("[fd00::1]", id="IPv6 without a port"),
        pytest.param("[FD00::1]:8444", id="IPv6 in capitals"),
        pytest.param("[fd00:0::1]:8444", id="IPv6 not in its short form"),
        pytest.param("[fe80::1%eth0]:8444", id="IPv6 with a zone"),
        pytest.param("[10.0.0.1]:8444", id="IPv4 in brackets"),
        pytest.param("[::ffff:10.0.0.1]:8444", id="IPv4 inside of IPv6"),
    ],
)
def test_dep92_any_other_text_is_no_address(text: str) -> None:
    """DEP-92: nothing is resolved, followed or put together from what others wrote."""
    assert read_address(text) == ""
