"""The Lua scripts: each change is one atomic step on the server.

The keys of a script are the session, its messages, the sessions of its user, the active ones of them, and the stored
reply. Its values begin with the expected owner of the session. If the owner is another user, the script returns that
user and changes nothing. A script refuses before its first write, because Redis cannot roll back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tellback.sessions.records import SESSION_FIELDS

FIELDS = tuple(name for name in SESSION_FIELDS if name != "id")
"""The fields of a session's hash, in the order that scripts take and give them."""

SAVED_FIELDS = tuple(name for name in FIELDS if name != "collected_data")
"""Those that a save gives back; what was gathered is as it was given."""

REPLY_TTL_MS = 60_000
"""How long it is known what a change gave: longer than any call is tried again."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which the server knows it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # Not for secrecy: Redis names scripts so.
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


def _lua_table(variable: str, names: tuple[str, ...]) -> str:
    return f"local {variable} = {{{', '.join(repr(name) for name in names)}}}\n"


_FIELDS_LUA = _lua_table("FIELDS", FIELDS)

_COMMON_LUA = (
    _FIELDS_LUA
    + _lua_table("KEPT", SAVED_FIELDS)
    + f"local REMEMBERED_MS = {REPLY_TTL_MS}\n"
    + """
local session, messages, users, active, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, id, session_ms, message_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local before = redis.call('GET', done)
if before then return cmsgpack.unpack(before) end

local KINDS = {'hash', 'stream', 'zset', 'zset'}
for n, kind in ipairs(KINDS) do
  local found = redis.call('TYPE', KEYS[n]).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. KEYS[n] .. ' is a ' .. found .. ', not a ' .. kind)
  end
end

local function whole(number) return string.format('%.0f', number) end

local function finish(reply)
  redis.call('SET', done, cmsgpack.pack(reply), 'PX', REMEMBERED_MS)
  return reply
end

-- A key lives as long as what lives longest in it. `left` is what it had left before.
local function outlive(key, left, ms)
  if ms == '' then
    redis.call('PERSIST', key)
  elseif left == -2 or (left >= 0 and left < tonumber(ms)) then
    redis.call('PEXPIRE', key, ms)
  end
end

local function put_in(key, member)
  local left = redis.call('PTTL', key)
  redis.call('ZADD', key, 0, member)
  outlive(key, left, session_ms)
end

-- A change gives a session its time again, and its user's lists with it.
local function changed(status, created_at)
  if session_ms == '' then redis.call('PERSIST', session) else redis.call('PEXPIRE', session, session_ms) end
  if owner == '' then return end
  local member = created_at .. ' ' .. id
  put_in(users, member)
  if status == 'active' then put_in(active, member) else redis.call('ZREM', active, member) end
end

local function last_position()
  local newest = redis.call('XREVRANGE', messages, '+', '-', 'COUNT', 1)[1]
  return newest and tonumber(newest[1]:match('^%d+')) or 0
end

local function now_ms()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

-- Appends what is in ARGV from `first` on. A few of the oldest that are past their time go.
local function append(last, first)
  if first > #ARGV then return last end
  local now = now_ms()
  local expires = message_ms == '' and '' or whole(now + tonumber(message_ms))
  local left = redis.call('PTTL', messages)
  for n = first, #ARGV do
    last = last + 1
    redis.call('XADD', messages, whole(last) .. '-0', 'expires', expires, 'message', ARGV[n])
  end
  outlive(messages, left, message_ms)
  for _, entry in ipairs(redis.call('XRANGE', messages, '-', whole(last - #ARGV + first - 1), 'COUNT', 4)) do
    local until_ms = tonumber(entry[2][2])
    if until_ms and until_ms <= now then redis.call('XDEL', messages, entry[1]) end
  end
  return last
end

-- Writes the fields that have a value, and clears the others.
local function put(fields)
  local set, cleared = {}, {}
  for name, value in pairs(fields) do
    if value == '' then
      cleared[#cleared + 1] = name
    else
      set[#set + 1] = name
      set[#set + 1] = value
    end
  end
  redis.call('HSET', session, unpack(set))
  if #cleared > 0 then redis.call('HDEL', session, unpack(cleared)) end
end

local function given(first)
  local fields = {}
  for n, name in ipairs(FIELDS) do fields[name] = ARGV[first + n - 1] end
  return fields
end
"""
)

CREATE = Script(
    _COMMON_LUA
    + """
local version = redis.call('HGET', session, 'version')
if version then return {'conflict', version} end
local fields = given(5)
fields.position = whole(last_position())
put(fields)
changed(fields.status, fields.created_at)
return finish({'ok'})
"""
)
"""Values behind those of all: the fields."""

SAVE = Script(
    _COMMON_LUA
    + """
local expected, newest, fields = ARGV[5], ARGV[6], given(7)
local first = 7 + #FIELDS
local was = redis.call('HMGET', session, 'version', 'user_id', 'agent_name', 'status', 'completed_at', 'created_at',
  'message_count', 'last_message_at', 'position')
if (was[1] or '0') ~= expected then return {'conflict', was[1] or '0'} end
if was[1] then
  fields.user_id = was[2] or fields.user_id
  fields.agent_name = was[3] or fields.agent_name
  fields.status, fields.completed_at, fields.created_at = was[4], was[5] or '', was[6]
  fields.message_count, fields.last_message_at = was[7], was[8] or ''
else
  fields.message_count = '0'
end
if fields.user_id ~= owner then return {'owner', fields.user_id} end
fields.message_count = whole(tonumber(fields.message_count) + #ARGV - first + 1)
if newest ~= '' then fields.last_message_at = newest end
fields.position = whole(append(was[9] and tonumber(was[9]) or last_position(), first))
put(fields)
changed(fields.status, fields.created_at)
return finish({'ok', redis.call('HMGET', session, unpack(KEPT))})
"""
)
"""Values behind those of all: the version before, when the last message was said, the fields, the messages."""

ADD_MESSAGES = Script(
    _COMMON_LUA
    + """
local at, newest, first = ARGV[5], ARGV[6], 7
local was = redis.call('HMGET', session, 'version', 'user_id', 'status', 'created_at', 'message_count', 'position')
if not was[1] then return {'missing'} end
if (was[2] or '') ~= owner then return {'owner', was[2] or ''} end
local last = tonumber(was[6])
local count = whole(tonumber(was[5]) + #ARGV - first + 1)
local position = whole(append(last, first))
put({message_count = count, last_message_at = newest, updated_at = at, position = position})
changed(was[3], was[4])
return finish({'ok', whole(last + 1)})
"""
)
"""Values behind those of all: when it changes, when the last message was said, the messages."""

UPDATE_STATUS = Script(
    _COMMON_LUA
    + """
local status, at, completed_at = ARGV[5], ARGV[6], ARGV[7]
local was = redis.call('HMGET', session, 'version', 'user_id', 'created_at')
if not was[1] then return {'missing'} end
if (was[2] or '') ~= owner then return {'owner', was[2] or ''} end
put({status = status, updated_at = at, completed_at = completed_at})
changed(status, was[3])
finish({'ok'})
return {'ok', redis.call('HMGET', session, unpack(FIELDS))}
"""
)
"""Values behind those of all: the status, when it changes, when it was completed."""

DELETE = Script(
    _COMMON_LUA
    + """
local was = redis.call('HMGET', session, 'version', 'user_id', 'created_at')
if (was[2] or '') ~= owner then return {'owner', was[2] or ''} end
if was[1] and owner ~= '' then
  redis.call('ZREM', users, was[3] .. ' ' .. id)
  redis.call('ZREM', active, was[3] .. ' ' .. id)
end
redis.call('DEL', session, messages)
return finish({'ok', was[1] and 1 or 0})
"""
)

READ_SESSIONS = Script(
    _FIELDS_LUA
    + """
local owner, wants_fields = ARGV[1], ARGV[2] == '1'
local rows = {}
for n = 3, #KEYS do
  local member = ARGV[n]
  local found = redis.call('HMGET', KEYS[n], 'user_id', 'created_at')
  if found[1] == owner and found[2] and found[2] == member:sub(1, #found[2]) then
    rows[#rows + 1] = wants_fields and redis.call('HMGET', KEYS[n], unpack(FIELDS)) or 1
  else
    -- It is past its time, or was begun anew. A replica cannot be tidied, but can be read.
    redis.pcall('ZREM', KEYS[1], member)
    redis.pcall('ZREM', KEYS[2], member)
    rows[#rows + 1] = false
  end
end
return rows
"""
)
"""The sessions of a user's list, and false for those that are gone, which are taken off it.

Keys: the user's list, the list of the active ones, the sessions. Values: the user, whether to give the fields, the
members of the list.
"""

READ_MESSAGES = Script(
    """
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local entries = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
local last = #entries > 0 and entries[#entries][1] or ''
local reply = {#entries, last}
for _, entry in ipairs(entries) do
  local until_ms = tonumber(entry[2][2])
  if not until_ms or until_ms > now then
    reply[#reply + 1] = entry[1]
    reply[#reply + 1] = entry[2][4]
  end
end
return reply
"""
)
"""Messages that have time left: how many were looked at and the last of them, then the id and the text of each.

Key: the messages. Values: XRANGE or XREVRANGE, from, to, how many to look at.
"""

PURGE_MESSAGES = Script(
    """
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest then return {0, ''} end
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
local gone = 0
for _, entry in ipairs(entries) do
  local until_ms = tonumber(entry[2][2])
  local is_past = until_ms and until_ms <= now
  -- The newest one says where positions go on, so it goes when it is alone.
  if is_past and (entry[1] ~= newest[1] or redis.call('XLEN', KEYS[1]) == 1) then
    redis.call('XDEL', KEYS[1], entry[1])
    gone = gone + 1
  end
end
if redis.call('XLEN', KEYS[1]) == 0 then redis.call('DEL', KEYS[1]) end
local next = #entries == tonumber(ARGV[2]) and entries[#entries][1] or ''
return {gone, next}
"""
)
"""Takes away messages that are past their time: how many, and where to go on.

Key: the messages. Values: from where, how many to look at.
"""

PROBE = Script("return #KEYS")
"""Whether scripts are taken, and the keys of an adapter can be used together."""
