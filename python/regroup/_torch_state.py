"""The training state of a PyTorch job as bytes: model, optimizer, and whatever has a state_dict().

Layout: the length of the text as 8 bytes; the text, JSON padded with blanks; the raw tensors in the
order of the JSON, each padded to 64 bytes. No pickle. The same state gives the same bytes in every
process.
"""

from __future__ import annotations

import collections
import json
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.nn.parameter import is_lazy

from regroup import _arguments, _native, _torch_device
from regroup._errors import Error, Refused, shown
from regroup._torch_changes import Changes
from regroup._torch_cursors import Cursors
from regroup._torch_layout import Layout

STATE = "regroup.state"  # the tensor with the JSON text of everything but tensors
_ALIGN = 64
_LONGEST_NAME = 4096  # bytes; the limit of checkpoint/manifest.h
_SCALARS = (bool, int, float, str, type(None))
_MAPPINGS = {"dict": dict, "Counter": collections.Counter, "OrderedDict": collections.OrderedDict}


class TrainingState:
    """The `State` of a session. Not thread-safe; tensors of the model are changed in place by
    load()."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        extra: list,
        limit: int | None,
        deadline: float = _torch_device.DEADLINE_S,
        changes: Changes | None = None,
        room: int = 0,
        cursors: Cursors | None = None,
    ):
        """deadline: the longest wait for a copy from a device, in seconds. changes: of the model,
        in mid-run. room: bytes that they may add to parameters and buffers. cursors: of the parts
        of a stream."""
        self.deadline = deadline
        self.changes = changes or Changes()
        self._cursors = cursors
        self.after_change: Callable[[list[list[Any]]], None] = lambda made: None
        self.model = model
        self.optimizers = optimizers
        self.extra = extra
        self.layout = Layout(model)
        self._groups = self._groups_now()  # as every member has made them
        # sum over the samples of the current epoch, of the steps with a recorded loss
        self.epoch_loss = 0.0
        self._keepers = _extra_state_modules(model)
        self._keys, self._copies = _state_dict_keys(model, self._keepers)
        named = _model_tensors(model)
        if limit is None:
            parameters = sum(_size(p) for p in model.parameters())
            text = (1 << 20) + 1024 * len(named)
            text += 0 if cursors is None else 6 * cursors.elements  # some bytes of it are escaped
            limit = sum(_size(t) for t in named.values()) + 3 * parameters + text
            averaged = sum(hasattr(one, "update_parameters") for one in extra)
            limit += (4 + averaged) * room  # three values of the optimizer
            more: dict[str, torch.Tensor] = {}
            _encode(self._extra_states(), more, "state")
            _encode([one.state_dict() for one in extra], more, "state.extra")
            limit += sum(_padded(_size(t)) for t in more.values())
        self.limit = limit

    def capacity(self) -> int:
        return self.limit

    def save(self) -> list[Any]:
        text, tensors = self._encoded()
        pieces: list[Any] = [text]
        for data in self._on_host(tensors.values()):
            size = len(data)
            pieces.append(data if size else b"")
            pieces += [bytes(-size % _ALIGN)] if size % _ALIGN else []
        self._check(sum(p.numel() if isinstance(p, torch.Tensor) else len(p) for p in pieces))
        return pieces

    def tensors(self) -> list[tuple[str, str, list[int]]]:
        """Name, type and shape of each piece of save(). A piece without a name is padding."""
        text, tensors = self._encoded()
        infos = [(STATE, "uint8", [len(text)])]
        for name, tensor in tensors.items():
            infos.append((name, _name(tensor.dtype), list(tensor.shape)))
            infos += [("", "uint8", [-_size(tensor) % _ALIGN])] if _size(tensor) % _ALIGN else []
        return infos

    def named(self) -> dict[str, torch.Tensor]:
        """The tensors by their names in tensors()."""
        return self._encoded()[1]

    def replicated(self) -> Iterator[tuple[str, Any]]:
        """Yields the parts of the state that must be equal in all members, each with its name:
        plain values as text, tensors as bytes.

        One at a time, since a tensor may have to be copied. Omits `extra`: it may differ between
        members, and a difference that matters shows in the rest. Omits what is frozen: a loop that
        freezes per substep, beside its backward(), leaves it alone in a member without a shard, and
        check_agreed() finds a difference that matters.
        """
        values: list[tuple[str, str]] = []
        tensors = [(f"model.{name}", tensor) for name, tensor in _model_tensors(self.model).items()]
        for prefix, optimizer in self._named_optimizers():
            state = optimizer.state_dict()
            for name in sorted(state, key=_key_order):
                _flatten(state[name], f"{prefix}.{name}", values, tensors)
        yield from values
        for name, tensor in tensors:
            if _is_dense(tensor) and tensor.numel() > 0:
                yield name, *self._on_host([tensor])

    def _on_host(self, tensors: Iterable[torch.Tensor]) -> list[Any]:
        """The bytes of each tensor, in memory of the host."""
        return _torch_device.on_host(list(map(_bytes_of, tensors)), self.deadline)

    def settings(self) -> dict[str, str]:
        """The plain values of the optimizer's parameter groups and of `extra`, by names for
        messages."""
        values: list[tuple[str, str]] = []
        for prefix, optimizer in self._named_optimizers():
            _flatten(optimizer.state_dict()["param_groups"], f"{prefix}.param_groups", values, [])
        for number, one in enumerate(self.extra):
            _flatten(one.state_dict(), f"extra[{number}] ({type(one).__name__})", values, [])
        return dict(values)

    def check_size(self) -> None:
        """Raises if the state has outgrown what was reserved for it."""
        text, tensors = self._encoded()
        self._check(len(text) + sum(_padded(_size(t)) for t in tensors.values()))

    def change(self, name: str, arguments: dict[str, Any]) -> None:
        """Changes the model by a function of join()."""
        self.changes.make(name, arguments, self.model, self.optimizers, self.extra)
        self.layout.change()
        self._keepers = _extra_state_modules(self.model)
        self._keys, self._copies = _state_dict_keys(self.model, self._keepers)
        self.after_change(self.changes.made)
        self.changes.unfinished = ""

    def load(self, data: memoryview) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            raw = torch.frombuffer(data, dtype=torch.uint8)  # only read
        length = int.from_bytes(data[:8], "little")
        state, listed, kinds = _parse(bytes(data[: 8 + length]))
        tensors, begin = [], 8 + length
        for dtype, shape in listed:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            _bytes_of(tensor).copy_(raw[begin : begin + _size(tensor)])
            begin += _padded(_size(tensor))
            tensors.append(tensor)
        decoded = _decode(state, tensors)
        for name, arguments in self.changes.missing(decoded.get("changes", [])):
            self.change(name, arguments)
        self._check_same(decoded, kinds)
        self._adopt(decoded)

    def _encoded(self) -> tuple[bytes, dict[str, torch.Tensor]]:
        tensors: dict[str, torch.Tensor] = {}
        whole = {
            "model": _model_tensors(self.model),
            "optimizer": self._optimizer_states(),
            "extra": [one.state_dict() for one in self.extra],
            "epoch_loss": self.epoch_loss,
            **({"changes": self.changes.made} if self.changes.made else {}),
            **({} if self._cursors is None else self._cursors.saved()),
            **self.layout.saved(),
            **self._changed_groups(),
            **self._extra_states(),
        }
        state = _encode(whole, tensors, "state", _same_order)
        listed = [(_name(t.dtype), list(t.shape)) for t in tensors.values()]
        if self._copies:
            self._keys, _ = _state_dict_keys(self.model, self._keepers)
        text = json.dumps(
            [state, listed, self._keys, self._kinds()], separators=(",", ":")
        ).encode()
        text += b" " * (-(8 + len(text)) % _ALIGN)
        return len(text).to_bytes(8, "little") + text, tensors

    def _named_optimizers(self) -> list[tuple[str, torch.optim.Optimizer]]:
        if len(self.optimizers) == 1:
            return [("optimizer", self.optimizers[0])]
        return [(f"optimizer[{number}]", one) for number, one in enumerate(self.optimizers)]

    def _optimizer_states(self) -> dict | list[dict]:
        """The state of the only optimizer, or those of several as a list."""
        states = [one.state_dict() for one in self.optimizers]
        return states[0] if len(states) == 1 else states

    def _groups_now(self) -> list[list[list[str | None]]]:
        """For each parameter group of each optimizer the names of its parameters; None: not one of
        the model's."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        return [
            [[names.get(id(p)) for p in group["params"]] for group in one.param_groups]
            for one in self.optimizers
        ]

    def _changed_groups(self) -> dict[str, Any]:
        """What the state has of the groups: nothing unless they or the model have changed since
        join()."""
        groups = self._groups_now()
        if groups == self._groups and not self.changes.made:
            return {}
        for (name, _), of_one in zip(self._named_optimizers(), groups, strict=True):
            for number, group in enumerate(of_one):
                if None in group:
                    raise Refused(
                        f"parameter group {number} of {name} has a parameter that is not the "
                        "model's: a new member could not have it. Make it part of the model before "
                        "join(), with requires_grad=False, and pass unfreeze=True",
                        "invalid argument",
                    )
        return {"groups": groups}

    def _adopt_groups(self, wanted: list[list[list[str]]]) -> None:
        """Gives the optimizers the parameter groups of the state, before their own states."""
        named = dict(self.model.named_parameters())
        now = self._groups_now()
        for one, groups, own in zip(self.optimizers, wanted, now, strict=True):
            if groups == own:
                continue
            parameters = [[named[name] for name in group] for group in groups]
            del one.param_groups[len(groups) :]
            for group, listed in zip(one.param_groups, parameters, strict=False):
                group["params"] = listed
            has_names = "param_names" in one.param_groups[0]
            for names, listed in list(zip(groups, parameters, strict=True))[
                len(one.param_groups) :
            ]:
                pairs = list(zip(names, listed, strict=True))
                one.add_param_group({"params": pairs if has_names else listed})

    def _check(self, size: int) -> None:
        if size > self.limit:
            raise Error(
                f"the state is {size} bytes and outgrew the {self.limit} reserved at join: "
                f"pass state_bytes={_padded(size + size // 8)} or more to join()",
                "resource exhausted",
            )

    def _kinds(self) -> list[str]:
        return [type(one).__name__ for one in self.extra]

    def _check_same(self, state: dict, kinds: list[str] | None) -> None:
        """Raises for a state that load_state_dict() would refuse with a less clear error, or accept
        although it belongs to another class: every scheduler's state is a dictionary."""

        def refuse(what: str, saved: object, own: object) -> NoReturn:
            raise Refused(
                f"{what} {saved} in the saved state, {own} in this program", "invalid argument"
            )

        saved_optimizers = _listed(state["optimizer"])
        if len(saved_optimizers) != len(self.optimizers):
            refuse("the number of optimizers is", len(saved_optimizers), len(self.optimizers))
        expected = state.get("groups", self._groups)
        for (name, _), saved, own in zip(
            self._named_optimizers(), saved_optimizers, expected, strict=True
        ):
            groups = [len(group["params"]) for group in saved["param_groups"]]
            own_groups = [len(group) for group in own]
            if groups != own_groups:
                refuse(f"the numbers of parameters in the groups of {name} are", groups, own_groups)
        own_kinds = self._kinds()
        if len(state["extra"]) != len(own_kinds):
            refuse("extra is", f"[{', '.join(kinds or [])}]", f"[{', '.join(own_kinds)}]")
        for number, (saved, kind) in enumerate(zip(state["extra"], kinds or [], strict=False)):
            if kind != own_kinds[number] and _keys(saved) != _keys(self.extra[number].state_dict()):
                refuse(f"extra[{number}] is", shown(kind), own_kinds[number])

    def _extra_states(self) -> dict[str, dict[str, Any]]:
        """The modules' get_extra_state(), by their keys in state_dict()."""
        kept = {key: module.get_extra_state() for key, module in self._keepers.items()}
        for key in list(kept):
            try:
                _encode({"extra_state": {key: kept[key]}}, {}, "state")
            except Refused as error:
                _warn_of_extra_state(key, error)
                del self._keepers[key], kept[key]
        return {"extra_state": kept} if kept else {}

    def _check_kind(self, name: str, saved: torch.Tensor, own: torch.Tensor) -> None:
        """Raises unless both have one type and shape: copy_() would cast, and repeat elements."""
        if saved.dtype == own.dtype and saved.shape == own.shape:
            return
        was, now = (f"{_name(one.dtype)} {list(one.shape)}" for one in (saved, own))
        why = "the functions of join(changes=...) must be those of the run that made it"
        raise Refused(
            f"{shown(name)} is {was} in the state, {now} in this program"
            + (f": {why}" if self.changes.made else ""),
            "invalid argument",
        )

    @torch.no_grad()
    def _adopt(self, state: dict) -> None:
        own = _model_tensors(self.model)
        if list(own) != list(state["model"]):
            raise Error(
                f"the state received is of another model: {_first_other(own, state['model'])}",
                "data loss",
            )
        for name, tensor in own.items():
            self._check_kind(name, state["model"][name], tensor)
        for name, tensor in own.items():
            tensor.copy_(state["model"][name])
        self.layout.adopt(state)
        if self._cursors is not None:
            self._cursors.adopt(state)
        self._adopt_groups(state.get("groups", self._groups))
        for optimizer, saved in zip(self.optimizers, _listed(state["optimizer"]), strict=True):
            # load_state_dict() takes tensors of parameter groups as they are: a learning rate.
            groups = _torch_device.placed(saved["param_groups"], optimizer.param_groups)
            optimizer.load_state_dict({**saved, "param_groups": groups})
            _undo_casts(optimizer, saved["state"])
        for one, saved in zip(self.extra, state["extra"], strict=True):
            one.load_state_dict(_torch_device.placed(saved, one.state_dict()))
        for key, kept in state.get("extra_state", {}).items():
            if (module := self._keepers.get(key)) is not None:
                module.set_extra_state(_torch_device.placed(kept, module.get_extra_state()))
        self.epoch_loss = state["epoch_loss"]


def _listed(saved: dict | list[dict]) -> list[dict]:
    """The saved states of optimizers: one is saved by itself, several as a list."""
    return saved if isinstance(saved, list) else [saved]


def _undo_casts(optimizer: torch.optim.Optimizer, saved: dict) -> None:
    """Restores the types of the optimizer's tensors: load_state_dict() casts them to the
    parameter's type, but an optimizer may keep wider ones."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in saved.items():
        state = optimizer.state[parameters[index]]
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and state[key].dtype != value.dtype:
                state[key] = value.to(state[key].device)


def _model_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, including those that state_dict() omits."""
    named = dict(model.named_parameters())
    named.update(model.named_buffers())
    return named


def _extra_state_modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The modules that have an extra state, by their keys in state_dict()."""
    out: dict[str, torch.nn.Module] = {}
    for name, module in model.named_modules():
        key, own = f"{name}._extra_state".lstrip("."), type(module)
        if own.get_extra_state is torch.nn.Module.get_extra_state:
            continue
        if own.set_extra_state is torch.nn.Module.set_extra_state:
            _warn_of_extra_state(key, "it has no set_extra_state()")
        else:
            out[key] = module
    return out


def _warn_of_extra_state(key: str, why: object) -> None:
    warnings.warn(
        f"join: {shown(key)} of the model is not in checkpoints, and no new member gets it: {why}",
        stacklevel=5,
    )


def _state_dict_keys(
    model: torch.nn.Module, keepers: Container[str]
) -> tuple[list[list[Any]] | str, bool]:
    """Returns the keys of the model's state_dict(), for `regroup checkpoint export --model-only`.

    Each key comes with the number of its tensor in _model_tensors(), or with its name in a
    checkpoint, or with None if a checkpoint lacks it. A tensor that two modules share has two keys;
    a buffer that is not persistent has none. If state_dict() fails, returns the reason as a text in
    place of the keys: it may be the model's own code, and joining does not depend on it.

    Also returns whether some tensors of state_dict() were copies. They stand for tensors of the
    model only as long as they are equal.
    """
    try:
        try:
            items = dict(model.state_dict(keep_vars=True))
        except TypeError:  # one of the model's own, without arguments
            items = dict(model.state_dict())
    except Exception as error:
        # Without the message: the text must be equal in all members, and messages may have
        # addresses in them.
        return f"the state_dict() of its model raised {type(error).__name__}", False
    own = list(_model_tensors(model).values())
    numbers = {id(tensor): number for number, tensor in enumerate(own)}
    by_memory = {
        _memory_of(tensor): tensor for tensor in own if _is_dense(tensor) and tensor.numel() > 0
    }
    aliases = dict(model.named_parameters(remove_duplicate=False))
    aliases.update(model.named_buffers(remove_duplicate=False))
    out: list[list[Any]] = []
    copies = False
    for key, value in items.items():
        if not isinstance(key, str):
            return f"the state_dict() of its model has a key that is {_arguments.kind(key)}", False
        if not isinstance(value, torch.Tensor):
            if isinstance(value, Mapping) and not key.endswith("_extra_state"):
                out.append([key, None])
        elif id(value) in numbers:
            out.append([key, numbers[id(value)]])
        elif key in keepers:
            out.append([key, f"extra_state.{key}"])
        else:  # from a hook or from the model's own state_dict()
            found = by_memory.get(_memory_of(value)) if _is_dense(value) else None
            if found is None and key in aliases:
                copies = True
                found = aliases[key] if _is_copy(value, aliases[key]) else None
            out.append([key, None if found is None else numbers[id(found)]])
    return out, copies


def _memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A key that is equal for tensors that view the same memory in the same way, such as a tensor
    and its detach()."""
    return (
        tensor.device,
        tensor.data_ptr(),
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _is_copy(one: torch.Tensor, other: torch.Tensor) -> bool:
    def kind(tensor: torch.Tensor) -> tuple[Any, ...]:
        return tensor.device, tensor.dtype, tensor.shape

    same = _is_dense(one) and _is_dense(other) and kind(one) == kind(other)
    return same and torch.equal(_bytes_of(one), _bytes_of(other))


def _is_dense(tensor: torch.Tensor) -> bool:
    plain = _torch_device.is_supported(tensor.device) and tensor.layout == torch.strided
    return plain and not tensor.is_nested and not tensor.is_quantized


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return whole.reshape(-1).view(torch.uint8)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _padded(size: int) -> int:
    return size + -size % _ALIGN


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _key_order(key: Any) -> tuple[str, Any]:
    return type(key).__name__, key


def _same_order(mapping: dict, path: str) -> list:
    """Returns the keys in an order that is equal in all members, in whatever order each member has
    set them."""
    return list(mapping) if path == "state.model" else sorted(mapping, key=_key_order)


def _flatten(
    value: Any, path: str, values: list[tuple[str, str]], tensors: list[tuple[str, torch.Tensor]]
) -> None:
    """Adds the plain values in `value` under names that look like Python: param_groups[0]['lr']."""
    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
    elif type(value) in _SCALARS:
        values.append((path, repr(value)))
    elif isinstance(value, dict):
        for key in sorted(value, key=_key_order):
            _flatten(value[key], f"{path}[{key!r}]", values, tensors)
    elif type(value) in (list, tuple):
        for index, one in enumerate(value):
            _flatten(one, f"{path}[{index}]", values, tensors)


def _own_order(mapping: dict, path: str) -> list:
    return list(mapping)


def _encode(
    value: Any,
    tensors: dict[str, torch.Tensor],
    path: str,
    keys_of: Callable[[dict, str], list] = _own_order,
) -> Any:
    """Returns `value` for JSON: scalars unchanged, everything else as [kind, content]. Puts tensors
    into the dictionary."""
    if isinstance(value, torch.Tensor):
        name = _new_name(path, tensors)
        if why := _why_not(value, name):
            raise Refused(f"{shown(path)[:200]}: {why}", "invalid argument")
        tensors[name] = value
        return ["tensor", len(tensors) - 1]
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        kind = type(value).__name__ if type(value).__name__ in _MAPPINGS else "dict"
        keys = keys_of(value, path)
        items = [
            (_encode(k, tensors, path), _encode(value[k], tensors, f"{path}.{k}", keys_of))
            for k in keys
        ]
        return [kind, [list(item) for item in items]]
    if type(value) in (list, tuple):
        items = [_encode(v, tensors, f"{path}[{i}]", keys_of) for i, v in enumerate(value)]
        return [type(value).__name__, items]
    raise Refused(
        f"{shown(path)}: {_arguments.kind(value)} in a state_dict() cannot be handed over",
        "invalid argument",
    )


def _why_not(tensor: torch.Tensor, name: str) -> str:
    """Returns why a checkpoint cannot hold `tensor` under `name`; empty if it can."""
    if is_lazy(tensor):
        return "a parameter that has no shape yet"
    if tensor.is_nested or tensor.is_quantized:
        how = "nested" if tensor.is_nested else "quantized"
        return f"{how} tensors are not supported: save the tensors of which it is made"
    if not _is_dense(tensor):
        return (
            "only dense tensors on the CPU or a GPU are supported, not "
            f"{tensor.layout} on {tensor.device}"
        )
    if _name(tensor.dtype) not in _native.DTYPES:
        return f"checkpoints have no type {_name(tensor.dtype)}: save it as {_view_of(tensor)}"
    if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME:
        return f"its name takes more than the {_LONGEST_NAME} bytes that a checkpoint allows"
    if any("\ud800" <= c <= "\udfff" for c in name):
        return "its name is not UTF-8"
    return ""


def _view_of(tensor: torch.Tensor) -> str:
    return "view_as_real() of it in float32" if tensor.is_complex() else "view(torch.uint8)"


def _new_name(path: str, taken: Container[str]) -> str:
    name = path.removeprefix("state.") or "''"  # of the key ""
    while name in taken or name == STATE:  # two keys may look alike, as 1 and "1" do
        name += "'"
    return name


def _names_in(value: Any) -> list[str]:
    """Returns the names under which _encode() put tensors into the dictionary, in that order."""
    names: dict[str, None] = {}

    def walk(value: Any, path: str) -> None:
        if not isinstance(value, list):
            return
        kind, content = value
        if kind == "tensor":
            names[_new_name(path, names)] = None
        elif kind in _MAPPINGS:
            for key, one in content:
                walk(key, path)
                walk(one, f"{path}.{_decode(key, [])}")
        else:
            for index, one in enumerate(content):
                walk(one, f"{path}[{index}]")

    walk(value, "state")
    return list(names)


def _parse(data: bytes) -> tuple[Any, list, list[str] | None]:
    """Parses the text of a TrainingState, preceded by its length. Returns the encoded state, the
    type and shape of each tensor, and the classes of `extra`, which versions before 0.1.0 did not
    write."""
    state, listed, *more = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return state, listed, more[1] if len(more) > 1 else None


def _keys(state: Any) -> set | None:
    return set(state) if isinstance(state, dict) else None


def _decode(value: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "tensor":
        return tensors[content]
    if kind in _MAPPINGS:
        return _MAPPINGS[kind]({_decode(k, tensors): _decode(v, tensors) for k, v in content})
    items = [_decode(v, tensors) for v in content]
    return tuple(items) if kind == "tuple" else items


def _first_other(own: dict, other: dict) -> str:
    return shown(", ".join(sorted(set(own) ^ set(other))[:3])) or "the order differs"
