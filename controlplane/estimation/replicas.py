"""The statistics of all control planes: this one's own, and what etcd tells of the others'.

Each control plane writes its own and reads all; their sum is the truth. The statistics of one that is gone stay, and
count, until a living one takes them over. A control plane that was believed to be gone, since it could not reach etcd
for longer than its lease, begins anew with nothing: what it had written counts as another's from then on, what it had
not is lost. So nothing ever counts twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass

from controlplane.errors import HeadraceError, UnavailableError
from controlplane.estimation import codec
from controlplane.estimation.keys import EstimationKeys
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import Pause
from controlplane.etcd.errors import LeaseNotFoundError, WatchLostError
from controlplane.etcd.records import Delete, Listing, Put, Record, delete, exists, get, mod_revision_is, put
from controlplane.learning.statistics import ModelSums, Statistics, forget, merge
from headrace_protos.headrace.v1 import calibration_pb2

_log = logging.getLogger(__name__)

# A replica that is gone for so long is taken over. Until then its statistics count all the same, so there is no hurry.
LEASE_SECONDS = 600
KEEP_SECONDS = 2.0
# etcd keeps what is overwritten until it compacts, so writing is bounded, for all models together.
BYTES_PER_SECOND = 20_000
BURST_BYTES = 2_000_000
# What is written again at once: as many more samples than last time. Fewer wait.
WORTHWHILE_SHARE = 0.02
LONGEST_UNWRITTEN_SECONDS = 30.0
STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Stored:
    """What etcd holds of one replica and model; None for what says nothing to this version."""

    sums: ModelSums | None
    mod_revision: int


@dataclass(frozen=True, slots=True)
class _Written:
    generation: int
    samples: int
    at: float


@dataclass(frozen=True, slots=True)
class _Takeover:
    """One of which etcd has not said whether it was done."""

    key: str
    sums: ModelSums | None
    written_to: str
    value: bytes


class Replicas:
    """`run` keeps etcd and this up to date. `own` is what this replica has learned; fold into it what `own_of` gives.

    `clock` gives Unix seconds, `draw` the jitter of retries.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: EstimationKeys,
        *,
        lease_seconds: int = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._keys = keys
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._draw = draw
        self._stored: dict[tuple[str, str], _Stored] = {}
        self._living: set[str] = set()
        self._written: dict[str, _Written] = {}
        self._takeover: _Takeover | None = None
        self._allowance = float(BURST_BYTES)
        self._allowed_at = clock()
        self.controls: dict[str, calibration_pb2.CalibrationControl] = {}
        """What operators have set, by model."""
        self.changes = Counter[str]()
        """Grows for a model whenever anything of it has changed, here or elsewhere."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.own = Statistics()
        self.name = secrets.token_hex(8)
        self._lease: int | None = None
        self._renew_at = 0.0
        self._written.clear()
        self._takeover = None

    # --- what is known ---------------------------------------------------------------------------------------------

    @property
    def models(self) -> set[str]:
        """Those of which something is learned or set."""
        return {*self.own.models, *self.controls, *(model for _, model in self._stored)}

    def generation_of(self, model: str) -> int:
        control = self.controls.get(model)
        return control.generation if control is not None else 0

    def own_of(self, model: str) -> Statistics:
        """This replica's statistics, of the generation in force, to fold an observation about the model into."""
        known = self.own.models.get(model)
        if known is None or known.generation < self.generation_of(model):
            self.own.reset(model, self.generation_of(model))
        self.changes[model] += 1
        return self.own

    def merged(self, model: str) -> Statistics:
        """Of all replicas, about one model; a value of its own."""
        parts = [sums for (_, name), sums in self._others() if name == model]
        if model in self.own.models:
            parts.append(self.own.models[model])
        least = ModelSums(self.generation_of(model))
        return merge((Statistics(models={model: sums}) for sums in (least, *parts)), self._clock())

    def _others(self) -> Iterator[tuple[tuple[str, str], ModelSums]]:
        for key, stored in self._stored.items():
            if key[0] != self.name and stored.sums is not None:
                yield key, stored.sums

    # --- following etcd --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._keep())

    async def _follow(self) -> None:
        pause = Pause(self._draw)
        refusal = ""
        while True:
            try:
                listing = await self._client.list(self._keys.prefix)
                self._replace(listing)
                refusal = ""
                async with aclosing(self._client.watch(self._keys.prefix, listing.revision + 1)) as watch:
                    async for changes in watch:
                        pause.reset()
                        self._apply(changes.events)
            except WatchLostError as error:
                _log.warning("listing statistics anew: %s", error)
            except UnavailableError:
                pass  # the client's health tells, and has logged it
            except HeadraceError as error:
                if refusal != str(error):
                    _log.error("cannot follow statistics: %s", error)
                refusal = str(error)
            await pause.wait()

    def _replace(self, listing: Listing) -> None:
        touched = self.models
        self._stored.clear()
        self._living.clear()
        self.controls.clear()
        self._apply(Put(record) for record in listing.records)
        self.changes.update(touched)

    def _apply(self, events: Iterable[Put | Delete]) -> None:
        for event in events:
            record = event.record if isinstance(event, Put) else None
            if replica := _below(self._keys.replicas, event.key):
                (self._living.add if record else self._living.discard)(replica)
            elif place := _below(self._keys.statistics, event.key):
                replica, _, model = place.partition("/")
                if record is None:
                    self._stored.pop((replica, model), None)
                else:
                    self._stored[replica, model] = _Stored(codec.decode(record), record.mod_revision)
                self.changes[model] += 1
            elif model := _below(self._keys.models, event.key):
                self._take_control(model, record)

    def _take_control(self, model: str, record: Record | None) -> None:
        control = codec.decode_control(record) if record else None
        if control is None:
            self.controls.pop(model, None)
        else:
            self.controls[model] = control
            known = self.own.models.get(model)
            if known is not None and known.generation < control.generation:
                self.own.reset(model, control.generation)
        self.changes[model] += 1

    # --- keeping etcd told -----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        pause = Pause(self._draw)
        try:
            while True:
                try:
                    await self._keep_once()
                    pause.reset()
                    await asyncio.sleep(KEEP_SECONDS)
                except HeadraceError as error:
                    _log.debug("etcd cannot be told of statistics: %s", error)  # its health is logged elsewhere
                    await pause.wait()
        finally:
            await self._leave()

    async def _keep_once(self) -> None:
        if not await self._is_alive():
            _log.warning("this control plane was believed to be gone; it learns of tokens anew replica=%s", self.name)
            self.changes.update(self.models)
            self._begin_anew()
            return
        await self._settle()
        now = self._clock()
        self.changes.update(forget(self.own, now))
        due = [model for model, sums in self.own.models.items() if self._is_due(sums, self._written.get(model), now)]
        for model in sorted(due, key=lambda model: self._written[model].at if model in self._written else 0.0):
            await self._write(model)
        await self._take_over_one()

    async def _is_alive(self) -> bool:
        """Whether this replica's key is there without a break since it was made, which the first call does."""
        now = self._clock()
        if self._lease is None:
            lease = await self._client.grant_lease(self._lease_seconds)
            await self._client.put(self._keys.replica(self.name), b"", lease_id=lease)
            self._lease = lease
        elif now >= self._renew_at:
            try:
                await self._client.renew_lease(self._lease)
            except LeaseNotFoundError:
                return False
            if await self._client.get(self._keys.replica(self.name)) is None:
                return False
        else:
            return True
        self._renew_at = now + self._lease_seconds / 3
        return True

    @staticmethod
    def _is_due(sums: ModelSums, written: _Written | None, now: float) -> bool:
        if written is None:
            return sums.samples > 0
        more = sums.samples - written.samples
        if more < 0 or sums.generation != written.generation or more > WORTHWHILE_SHARE * sums.samples:
            return True
        return more > 0 and now - written.at >= LONGEST_UNWRITTEN_SECONDS

    async def _write(self, model: str) -> None:
        now = self._clock()
        self._allowance = min(BURST_BYTES, self._allowance + BYTES_PER_SECOND * max(0.0, now - self._allowed_at))
        self._allowed_at = now
        if self._allowance <= 0:
            return
        sums = self.own.models[model]
        written = _Written(sums.generation, sums.samples, now)
        value = codec.encode(sums)
        self._allowance -= len(value)
        key = self._keys.statistics_of(self.name, model)
        change = put(key, value) if sums.samples else delete(key)
        if (await self._client.transact([exists(self._keys.replica(self.name))], [change])).succeeded:
            self._written[model] = written
        else:
            self._renew_at = 0.0  # to find out whether it is alive

    # --- taking over -----------------------------------------------------------------------------------------------

    async def _take_over_one(self) -> None:
        """The statistics of one model of a replica that is gone. The first of the living does it."""
        if not self._living or min(self._living) != self.name:
            return
        gone = sorted(key for key in self._stored if key[0] not in self._living)
        if not gone:
            return
        replica, model = gone[0]
        stored = self._stored[replica, model]
        key, own_key = self._keys.statistics_of(replica, model), self._keys.statistics_of(self.name, model)
        value = codec.encode(self._with(model, stored.sums))
        # What says nothing to this version is let go.
        changes = [delete(key), put(own_key, value)] if stored.sums is not None else [delete(key)]
        self._takeover = _Takeover(key, stored.sums, own_key, value)
        outcome = await self._client.transact(
            [
                mod_revision_is(key, stored.mod_revision),
                mod_revision_is(self._keys.replica(replica), 0),
                exists(self._keys.replica(self.name)),
            ],
            changes,
        )
        self._taken_over(done=outcome.succeeded)

    async def _settle(self) -> None:
        """Finds out what became of a takeover of which etcd did not say so."""
        if self._takeover is None:
            return
        outcome = await self._client.transact([], [get(self._takeover.key), get(self._takeover.written_to)])
        theirs, ours = outcome.records
        self._taken_over(done=theirs is None and ours is not None and ours.value == self._takeover.value)

    def _taken_over(self, *, done: bool) -> None:
        takeover, self._takeover = self._takeover, None
        if takeover is None or not done:
            return
        replica, _, model = takeover.key.removeprefix(self._keys.statistics).partition("/")
        self._stored.pop((replica, model), None)
        # In the same instant, and with what was folded meanwhile.
        self.own.models[model] = self._with(model, takeover.sums)
        self.changes[model] += 1
        _log.info("statistics of a control plane that is gone taken over replica=%s model=%s", replica, model)

    def _with(self, model: str, sums: ModelSums | None) -> ModelSums:
        parts = [self.own.models.get(model) or ModelSums(self.generation_of(model)), sums or ModelSums()]
        return merge((Statistics(models={model: part}) for part in parts), self._clock()).models[model]

    async def _leave(self) -> None:
        """Writes what is not written yet, and goes, so that another one may take over at once."""
        with suppress(HeadraceError, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                self._allowance = float(BURST_BYTES)
                if self._takeover is None and await self._is_alive() and self._lease is not None:
                    for model, sums in self.own.models.items():
                        if self._is_due(sums, self._written.get(model), math.inf):
                            await self._write(model)
                    await self._client.revoke_lease(self._lease)


def _below(prefix: str, key: str) -> str:
    return key[len(prefix) :] if key.startswith(prefix) else ""
