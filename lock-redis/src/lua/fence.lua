-- Remembers `token` in the hash `key` if it is not older than the newest one seen; answers false then, else the newest one.
-- Tokens are compared as texts of digits, since Lua's numbers end at 2^53.
local function admit(key, token)
  local newest = redis.call('HGET', key, 'token')
  if newest and (#newest > #token or (#newest == #token and newest > token)) then
    return newest
  end
  redis.call('HSET', key, 'token', token)
  return false
end
