-- KEYS hash  ARGV token value
local newest = admit(KEYS[1], ARGV[1])
if not newest then
  redis.call('HSET', KEYS[1], 'value', ARGV[2])
end
return newest
