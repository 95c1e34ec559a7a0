-- KEYS lock meta queue board
local call = redis.call
local kind = call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {}
end
local value = kind == 'string' and call('GETRANGE', KEYS[1], 0, 255) or ''
return {
  value, call('PTTL', KEYS[1]), call('HMGET', KEYS[2], 'h', 't'), call('HGET', KEYS[4], 'last') or '', call('ZCOUNT', KEYS[3], '-inf', '(5000000000000000'), kind,
}
