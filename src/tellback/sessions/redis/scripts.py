"""The Lua scripts: each change is one atomic step on the server.

The keys of a script are the session, its messages, the user's sessions, the user's active sessions, and the stored
reply. Its values begin with the expected user of the session. If the session belongs to another user, the script
returns that user and changes nothing. A script checks everything before its first write, because Redis cannot roll
back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tellback.sessions.records import SESSION_FIELDS

FIELDS = tuple(name for name in SESSION_FIELDS if name != "id")
"""The fields of a session's hash, in the order of scripts' arguments and replies."""

SAVED_FIELDS = tuple(name for name in FIELDS if name != "collected_data")
"""The fields that a save returns: all except `collected_data`, which the caller has."""

REPLY_TTL_MS = 60_000
"""How long the reply to a change is stored: longer than any call is retried."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which the server identifies it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # Redis identifies scripts by SHA-1; this is not for security.
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


def _lua_table(variable: str, names: tuple[str, ...]) -> str:
    return f"local {variable} = {{{', '.join(repr(name) for name in names)}}}\n"


_FIELDS_LUA = _lua_table("FIELDS", FIELDS)

_COMMON_LUA = (
    _FIELDS_LUA
    + _lua_table("SAVED_FIELDS", SAVED_FIELDS)
    + f"local REPLY_TTL_MS = {REPLY_TTL_MS}\n"
    + """
local session, messages, user_sessions, active, reply_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local expected_user, id, session_ms, message_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local cached_reply = redis.call('GET', reply_key)
if cached_reply then return cmsgpack.unpack(cached_reply) end

local KINDS = {'hash', 'stream', 'zset', 'zset'}
for n, kind in ipairs(KINDS) do
  local found = redis.call('TYPE', KEYS[n]).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. KEYS[n] .. ' is a ' .. found .. ', not a ' .. kind)
  end
end

local function to_integer_string(number) return string.format('%.0f', number) end

local function finish(reply)
  redis.call('SET', reply_key, cmsgpack.pack(reply), 'PX', REPLY_TTL_MS)
  return reply
end

-- A key expires with its longest-living content. `previous_ttl` is its time to live before the change.
local function extend_ttl(key, previous_ttl, ms)
  if ms == '' then
    redis.call('PERSIST', key)
  elseif previous_ttl == -2 or (previous_ttl >= 0 and previous_ttl < tonumber(ms)) then
    redis.call('PEXPIRE', key, ms)
  end
end

local function add_to_index(key, member)
  local previous_ttl = redis.call('PTTL', key)
  redis.call('ZADD', key, 0, member)
  extend_ttl(key, previous_ttl, session_ms)
end

-- A change renews the time to live of a session and of its user's lists.
local function touch_session(status, created_at)
  if session_ms == '' then redis.call('PERSIST', session) else redis.call('PEXPIRE', session, session_ms) end
  if expected_user == '' then return end
  local member = created_at .. ' ' .. id
  add_to_index(user_sessions, member)
  if status == 'active' then add_to_index(active, member) else redis.call('ZREM', active, member) end
end

local function last_position()
  local newest = redis.call('XREVRANGE', messages, '+', '-', 'COUNT', 1)[1]
  return newest and tonumber(newest[1]:match('^%d+')) or 0
end

local function now_ms()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

-- Appends the messages in ARGV from `first` on. Deletes a few of the oldest expired ones.
local function append(last, first)
  if first > #ARGV then return last end
  local now = now_ms()
  local expires = message_ms == '' and '' or to_integer_string(now + tonumber(message_ms))
  local previous_ttl = redis.call('PTTL', messages)
  for n = first, #ARGV do
    last = last + 1
    redis.call('XADD', messages, to_integer_string(last) .. '-0', 'expires', expires, 'message', ARGV[n])
  end
  extend_ttl(messages, previous_ttl, message_ms)
  local newest_old = to_integer_string(last - #ARGV + first - 1)
  for _, entry in ipairs(redis.call('XRANGE', messages, '-', newest_old, 'COUNT', 4)) do
    local expires_ms = tonumber(entry[2][2])
    if expires_ms and expires_ms <= now then redis.call('XDEL', messages, entry[1]) end
  end
  return last
end

-- Writes fields with a value, and deletes the others.
local function write_fields(fields)
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

local function parse_fields(first)
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
local fields = parse_fields(5)
fields.position = to_integer_string(last_position())
write_fields(fields)
touch_session(fields.status, fields.created_at)
return finish({'ok'})
"""
)
"""Values after the common ones: the fields."""

SAVE = Script(
    _COMMON_LUA
    + """
local expected, newest, fields = ARGV[5], ARGV[6], parse_fields(7)
local first = 7 + #FIELDS
local stored = redis.call('HMGET', session, 'version', 'user_id', 'agent_name', 'status', 'completed_at', 'created_at',
  'message_count', 'last_message_at', 'position')
if (stored[1] or '0') ~= expected then return {'conflict', stored[1] or '0'} end
if stored[1] then
  fields.user_id = stored[2] or fields.user_id
  fields.agent_name = stored[3] or fields.agent_name
  fields.status, fields.completed_at, fields.created_at = stored[4], stored[5] or '', stored[6]
  fields.message_count, fields.last_message_at = stored[7], stored[8] or ''
else
  fields.message_count = '0'
end
if fields.user_id ~= expected_user then return {'wrong_user', fields.user_id} end
fields.message_count = to_integer_string(tonumber(fields.message_count) + #ARGV - first + 1)
if newest ~= '' then fields.last_message_at = newest end
fields.position = to_integer_string(append(stored[9] and tonumber(stored[9]) or last_position(), first))
write_fields(fields)
touch_session(fields.status, fields.created_at)
return finish({'ok', redis.call('HMGET', session, unpack(SAVED_FIELDS))})
"""
)
"""Values after the common ones: the previous version, the time of the last message, the fields, the messages."""

ADD_MESSAGES = Script(
    _COMMON_LUA
    + """
local at, newest, first = ARGV[5], ARGV[6], 7
local stored = redis.call('HMGET', session, 'version', 'user_id', 'status', 'created_at', 'message_count', 'position')
if not stored[1] then return {'missing'} end
if (stored[2] or '') ~= expected_user then return {'wrong_user', stored[2] or ''} end
local last = tonumber(stored[6])
local count = to_integer_string(tonumber(stored[5]) + #ARGV - first + 1)
local position = to_integer_string(append(last, first))
write_fields({message_count = count, last_message_at = newest, updated_at = at, position = position})
touch_session(stored[3], stored[4])
return finish({'ok', to_integer_string(last + 1)})
"""
)
"""Values after the common ones: the time of the change, the time of the last message, the messages."""

UPDATE_STATUS = Script(
    _COMMON_LUA
    + """
local status, at, completed_at = ARGV[5], ARGV[6], ARGV[7]
local stored = redis.call('HMGET', session, 'version', 'user_id', 'created_at')
if not stored[1] then return {'missing'} end
if (stored[2] or '') ~= expected_user then return {'wrong_user', stored[2] or ''} end
write_fields({status = status, updated_at = at, completed_at = completed_at})
touch_session(status, stored[3])
finish({'ok'})
return {'ok', redis.call('HMGET', session, unpack(FIELDS))}
"""
)
"""Values after the common ones: the status, the time of the change, the completion time."""

DELETE = Script(
    _COMMON_LUA
    + """
local stored = redis.call('HMGET', session, 'version', 'user_id', 'created_at')
if (stored[2] or '') ~= expected_user then return {'wrong_user', stored[2] or ''} end
if stored[1] and expected_user ~= '' then
  redis.call('ZREM', user_sessions, stored[3] .. ' ' .. id)
  redis.call('ZREM', active, stored[3] .. ' ' .. id)
end
redis.call('DEL', session, messages)
return finish({'ok', stored[1] and 1 or 0})
"""
)

READ_SESSIONS = Script(
    _FIELDS_LUA
    + """
local expected_user, wants_fields = ARGV[1], ARGV[2] == '1'
local rows = {}
for n = 3, #KEYS do
  local member = ARGV[n]
  local found = redis.call('HMGET', KEYS[n], 'user_id', 'created_at')
  if found[1] == expected_user and found[2] and found[2] == member:sub(1, #found[2]) then
    rows[#rows + 1] = wants_fields and redis.call('HMGET', KEYS[n], unpack(FIELDS)) or 1
  else
    -- It has expired, or was created again. A replica is read-only, so errors are ignored.
    redis.pcall('ZREM', KEYS[1], member)
    redis.pcall('ZREM', KEYS[2], member)
    rows[#rows + 1] = false
  end
end
return rows
"""
)
"""Read the sessions of a user's list; expired ones are false and are removed from the list.

Keys: the user's list, the list of active ones, the sessions. Values: the user, whether to return the fields, the
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
  local expires_ms = tonumber(entry[2][2])
  if not expires_ms or expires_ms > now then
    reply[#reply + 1] = entry[1]
    reply[#reply + 1] = entry[2][4]
  end
end
return reply
"""
)
"""Read messages that have not expired: how many were read and the last of them, then the id and the text of each.

Key: the messages. Values: XRANGE or XREVRANGE, from, to, how many to read.
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
  local expires_ms = tonumber(entry[2][2])
  local is_past = expires_ms and expires_ms <= now
  -- The newest message contains the last position, so it is deleted only when it is alone.
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
"""Delete expired messages. Returns how many, and where to continue.

Key: the messages. Values: where to start, how many to read.
"""

PROBE = Script("return #KEYS")
"""Check that scripts are allowed, and that the keys of an adapter can be used together."""
