"""What tenants have used of their rates, in Redis or Valkey, by the server's own clock.

A debt is the time, in microseconds, at which it is paid off; its key ends with it. Keys are digests, as those of pins.
"""

from __future__ import annotations

from hashlib import blake2b

from controlplane.errors import UnavailableError
from controlplane.policy.rates import WINDOW_SECONDS, Admission, Charge
from ext_proc.redis_connection import Refused
from ext_proc.redis_link import RedisLink

# All or nothing, in one step for whoever else asks: `controlplane.policy.rates.admit`.
# KEYS: the debts. ARGV: how much each may be afterwards, then what is added to each, in microseconds.
_SCRIPT = b"""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local debts, admitted = {}, 1
for i, key in ipairs(KEYS) do
  debts[i] = math.max((tonumber(redis.call('GET', key)) or now) - now, 0)
  if debts[i] + ARGV[i + 1] > tonumber(ARGV[1]) then admitted = 0 end
end
if admitted == 1 then
  for i, key in ipairs(KEYS) do
    debts[i] = math.max(debts[i] + ARGV[i + 1], 0)
    if debts[i] > 0 then
      redis.call('SET', key, string.format('%.0f', now + debts[i]), 'PX', math.ceil(debts[i] / 1000))
    else
      redis.call('DEL', key)
    end
  end
end
return admitted .. ' ' .. table.concat(debts, ' ')
"""
_ANY_DEBT = b"1e15"


class RedisDebts:
    """`link` is looked after by somebody else. `prefix` keeps fleets apart that share a server."""

    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix.encode()

    async def charge(self, tenant: str, charges: tuple[Charge, ...]) -> Admission:
        most = _microseconds(WINDOW_SECONDS)
        keys = [self._key(tenant, charge.of) for charge in charges]
        answer = await self._link.ask(*_command(keys, most, [charge.seconds for charge in charges]))
        if isinstance(answer, Refused):  # as by rights that are enough for sessions; these go on
            raise UnavailableError(f"rates are not kept: {answer.message}")
        admitted, *debts = (answer or b"").split()
        return Admission(admitted == b"1", tuple(float(debt) / 1e6 for debt in debts))

    def correct(self, tenant: str, of: str, seconds: float) -> bool:
        return self._link.tell(*_command([self._key(tenant, of)], _ANY_DEBT, [seconds]))

    def _key(self, tenant: str, of: str) -> bytes:
        digest = blake2b(tenant.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        return self._prefix + f"{digest}:{of}".encode()


def _command(keys: list[bytes], most: bytes, added: list[float]) -> tuple[bytes, ...]:
    return b"EVAL", _SCRIPT, b"%d" % len(keys), *keys, most, *map(_microseconds, added)


def _microseconds(seconds: float) -> bytes:
    return b"%d" % round(seconds * 1e6)
