local call = redis.call
-- Milliseconds: how long a free name is set aside for a waiter, after which silence a process counts as dead, how long a
-- name is left open for clients that know of no queue, and how long queue and board outlive their last use.
local RESERVE, STALE, OPEN, LINGER = 300, 600, 20, 600000
-- Owners that were given up lie behind all waiters, scored by the millisecond at which they are forgotten.
local TOMBS = 5000000000000000

-- Microseconds.
local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Counts a grant and notes its holder. A counter below the floor is new, or thrown back by a failover or a restart.
local function count(meta, note, meta_ttl, floor)
  local token = call('HINCRBY', meta, 't', 1)
  if token < tonumber(floor) then
    token = math.max(clock(), token)
    call('HSET', meta, 't', string.format('%.0f', token))
  end
  call('HSET', meta, 'h', note)
  call('PEXPIRE', meta, meta_ttl)
  return token
end

-- The waiter that joined first.
local function first(queue)
  local head = call('ZRANGE', queue, 0, 0)[1]
  return head and #head == 32 and head
end

-- From here on no late request of this owner takes anything.
local function bury(queue, owner, ttl)
  call('ZADD', queue, string.format('%.0f', TOMBS + math.floor(clock() / 1000) + ttl), 'dead' .. owner)
  call('PEXPIRE', queue, LINGER)
end

local function leave(queue, board, owner)
  call('ZREM', queue, owner)
  call('HDEL', board, owner)
end

-- A hint: without the right to the channel, the waiter learns of it by its poll.
local function tell(process, word, owner, lock)
  redis.pcall('PUBLISH', 'distlock:' .. process, word .. owner .. lock)
end

-- Sets a free name aside for the first waiter whose process is alive. The waiter stays queued until it claims.
local function hand_over(lock, queue, board, now)
  now = math.floor(now / 1000)
  local s = call('HMGET', board, 'last', 'tries', 'open')
  if now < tonumber(s[3] or 0) then
    return
  end
  for _ = 1, 1000 do
    local head = first(queue)
    if not head then
      return
    end
    local process = call('HGET', board, head)
    local beat = process and tonumber(call('HGET', board, process) or 0) or 0
    local tries = s[1] == head and tonumber(s[2]) or 0
    if now - beat < STALE and tries < 2 then
      call('SET', lock, head, 'PX', RESERVE)
      call('HSET', board, 'last', head, 'tries', tries + 1)
      call('HINCRBY', board, 'count', 1)
      call('PEXPIRE', board, LINGER)
      tell(process, 'R', head, lock)
      return
    end
    leave(queue, board, head)
    call('HDEL', board, process or head)
  end
end

-- Forgets processes that have waited once and are silent now.
local function sweep(board, now)
  local all = call('HGETALL', board)
  for i = 1, #all, 2 do
    if #all[i] == 12 and now - tonumber(all[i + 1]) > 10 * STALE then
      call('HDEL', board, all[i])
    end
  end
end

-- What follows a release: now and then the name is left open, else clients that only know SET NX would starve.
local function pass_on(lock, queue, board)
  if call('EXISTS', lock) == 1 then
    return
  end
  local now = clock()
  local s = call('HMGET', board, 'count', 'open')
  if tonumber(s[1] or 0) < 16 or now / 1000 - tonumber(s[2] or 0) < 1000 then
    return hand_over(lock, queue, board, now)
  end
  call('HSET', board, 'count', 0, 'open', math.floor(now / 1000) + OPEN)
  call('PEXPIRE', board, LINGER)
  sweep(board, now / 1000)
  local head = first(queue)
  local process = head and call('HGET', board, head)
  if process then
    tell(process, 'O', head, lock)
  end
end
