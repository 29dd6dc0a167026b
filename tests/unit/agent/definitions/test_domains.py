"""Domains: registered by name, filtered, accessed as attributes, offered to a model."""

from __future__ import annotations

import copy
import math
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.agent.definitions.tools import DomainRegistry
from tellback.errors import FlowError
from tellback.tools import Tool, tool


@tool
def refund(id: str) -> str:
    """Pay back."""
    return f"refunded {id}"


class Shipping:
    """A service with attributes other than methods."""

    rate = 5

    def __init__(self) -> None:
        self.lookup = tool(self.track)

    @property
    def dangerous(self) -> Any:
        raise AssertionError("a property was run")

    def cost(self, weight: int) -> int:
        return weight * self.rate

    def track(self, id: str) -> str:
        """Return the location."""
        return "here"

    def _secret(self) -> None: ...

    class Options: ...


def registry() -> DomainRegistry:
    domains = DomainRegistry()
    domains.register("payment", {"refund": refund, "total": sum})
    domains.register("shipping", Shipping())
    return domains


def test_domains_keep_their_order() -> None:
    assert registry().names == ("payment", "shipping")


def test_has_and_get_find_registered_domains() -> None:
    domains = registry()
    assert domains.has("payment")
    assert not domains.has("weather")
    assert domains.get("weather") is None
    assert domains.get("payment") == {"refund": refund, "total": sum}


def test_an_object_registers_its_public_attributes_and_methods_but_no_properties() -> None:
    assert set(registry().get("shipping") or ()) == {"cost", "track", "lookup", "rate", "Options"}


def test_an_attribute_changed_later_is_read_with_its_new_value() -> None:
    service, domains = Shipping(), DomainRegistry()
    domains.register("shipping", service)
    service.rate = 7
    assert domains.namespace.shipping.rate == domains.filtered()["shipping"]["rate"] == 7


def test_a_domain_holds_values_of_any_kind() -> None:
    service = Shipping()
    members = {"service": service, "limits": {"daily": 100}, "fee": 5, "codes": ["a"], "nothing": None, "math": math}
    domains = DomainRegistry()
    domains.register("shop", members)
    assert domains.get("shop") == members
    assert domains.namespace.shop.service.cost(2) == 10
    assert (domains.namespace.shop.limits["daily"], domains.namespace.shop.fee) == (100, 5)
    assert domains.namespace.shop.math.floor(1.5) == 1
    assert domains.tools() == []


def test_a_module_registers_its_values_and_only_functions_it_defines_or_exports() -> None:
    module = types.ModuleType("shop")
    exec("import os\nfrom os.path import join\nfee = 5\ndef pay(): return 'paid'\ndef _hidden(): ...", module.__dict__)
    domains = DomainRegistry()
    domains.register("shop", module)
    domains.register("math", math)
    assert list(domains.get("shop") or ()) == ["fee", "pay"]
    assert domains.namespace.math.pi == math.pi
    module.__all__ = ["join"]  # type: ignore[attr-defined]
    domains.register("listed", module)
    assert list(domains.get("listed") or ()) == ["join"]


def test_a_duplicate_domain_name_raises_flow_error() -> None:
    domains = registry()
    with pytest.raises(FlowError, match="Domain 'payment': a domain with this name exists"):
        domains.register("payment", {"other": print})
    assert domains.get("payment") == {"refund": refund, "total": sum}


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_a_name_must_be_a_non_empty_string(name: Any) -> None:
    with pytest.raises(FlowError, match="name must be a non-empty string"):
        DomainRegistry().register(name, {"a": print})


@pytest.mark.parametrize("domain", [{}, object(), types.SimpleNamespace(_rate=5)])
def test_an_empty_domain_is_rejected(domain: Any) -> None:
    domains = DomainRegistry()
    with pytest.raises(FlowError, match="it contains nothing"):
        domains.register("empty", domain)
    assert domains.names == ()


@pytest.mark.parametrize("domain", [None, 5, "payment", [print]])
def test_a_domain_must_be_a_mapping_an_object_or_a_module(domain: Any) -> None:
    with pytest.raises(FlowError, match="must be a mapping of names to values, an object or a module"):
        DomainRegistry().register("odd", domain)


@pytest.mark.parametrize("domain", [{5: print}, {"": print}])
def test_a_mapping_must_map_names_to_values(domain: Any) -> None:
    with pytest.raises(FlowError, match="must map names to values"):
        DomainRegistry().register("odd", domain)


def test_filtering_returns_the_requested_domains() -> None:
    domains = registry()
    assert list(domains.filtered(["shipping"])) == ["shipping"]
    assert domains.filtered([]) == {}
    assert domains.filtered() == domains.all() == domains.filtered(["payment", "shipping"])


def test_an_unknown_domain_error_lists_the_known_domains() -> None:
    with pytest.raises(FlowError, match=r"'weather': this domain does not exist\. Known domains: payment, shipping"):
        registry().filtered(["payment", "weather"])
    with pytest.raises(FlowError, match="Known domains: none"):
        DomainRegistry().tools(["weather"])


def test_a_string_instead_of_a_list_of_names_is_rejected() -> None:
    with pytest.raises(FlowError, match=r"write \['payment'\]"):
        registry().filtered("payment")


def test_returned_domains_are_copies() -> None:
    domains = registry()
    domains.all()["payment"].clear()
    domains.all().clear()
    (domains.get("payment") or {}).clear()
    assert domains.get("payment") == {"refund": refund, "total": sum}


def test_changing_the_registered_mapping_does_not_change_the_domain() -> None:
    members = {"pay": print}
    domains = DomainRegistry()
    domains.register("payment", members)
    members.clear()
    assert domains.get("payment") == {"pay": print}


def test_members_are_accessible_as_attributes() -> None:
    space = registry().namespace
    assert space.payment.refund("7") == "refunded 7"
    assert space.payment.total([1, 2]) == 3
    assert space.shipping.cost(2) == 10
    assert space["payment"]["total"]([1]) == 1
    assert dir(space) == ["payment", "shipping"]
    assert repr(space.payment) == "<members: refund, total>"


def test_a_namespace_includes_domains_registered_later() -> None:
    domains = DomainRegistry()
    space = domains.namespace
    domains.register("payment", {"total": sum})
    assert space.payment.total([1, 2]) == 3


def test_an_unknown_attribute_error_lists_the_known_names() -> None:
    space = registry().namespace
    with pytest.raises(AttributeError, match=r"Unknown domain 'weather'\. Known: payment, shipping"):
        _ = space.weather
    with pytest.raises(AttributeError, match=r"Unknown member 'steal'\. Known: refund, total"):
        _ = space.payment.steal
    with pytest.raises(KeyError, match="Unknown domain 'weather'"):
        _ = space["weather"]
    assert not hasattr(space, "__wrapped__")


def test_a_namespace_can_be_copied() -> None:
    assert copy.copy(registry().namespace).payment.total([1]) == 1


def test_a_model_is_offered_only_tools() -> None:
    domains = registry()
    assert [each.name for each in domains.tools()] == ["refund", "track"]
    assert domains.tools(["payment"]) == [refund]
    assert domains.tools([]) == []


def test_the_same_tool_in_two_domains_is_offered_once() -> None:
    domains = registry()
    domains.register("support", {"give_back": refund})
    assert [each.name for each in domains.tools()] == ["refund", "track"]


def test_two_tools_with_the_same_name_are_rejected() -> None:
    domains = registry()
    domains.register("support", {"refund": Tool.from_fn(len, name="refund", description="Other.")})
    with pytest.raises(FlowError, match="Domain 'support': domain 'payment' also has a tool called 'refund'"):
        domains.tools()
    assert domains.tools(["support"])[0].fn is len


@given(st.lists(st.text(min_size=1).filter(str.strip), unique=True, max_size=6), st.data())
def test_any_name_can_be_registered_filtered_and_accessed(names: list[str], data: st.DataObject) -> None:
    domains = DomainRegistry()
    for name in names:
        domains.register(name, {"fn": str})
    some = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    assert list(domains.filtered(some)) == some
    assert all(domains.namespace[name].fn is str for name in names)
