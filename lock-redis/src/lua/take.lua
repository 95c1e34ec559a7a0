-- The short way to a lock that is free and has no queue. Tombs stand in the queue too, so it is short of nothing.
-- KEYS lock meta queue  ARGV owner ttl note [meta-ttl] floor
local call = redis.call
if call('EXISTS', KEYS[3]) == 0 and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local token = call('HINCRBY', KEYS[2], 't', 1)
  local new = token < tonumber(ARGV[#ARGV])
  if new then
    -- A new name, an idle one, or a counter that a failover or a restart has thrown back. The server's time lies above all tokens before.
    local t = call('TIME')
    token = math.max(t[1] * 1000000 + t[2], token)
    call('HSET', KEYS[2], 't', string.format('%.0f', token))
  end
  call('HSET', KEYS[2], 'h', ARGV[3])
  -- Not each time: it is one step more, and renewals refresh it too.
  if new or ARGV[5] or token % 16 == 0 then
    call('PEXPIRE', KEYS[2], ARGV[5] and ARGV[4] or 604800000)
  end
  return token
end
local value = call('GET', KEYS[1])
if not value then
  return {}
end
return { string.sub(value, 1, 64), call('PTTL', KEYS[1]), call('HMGET', KEYS[2], 'h', 't') }
