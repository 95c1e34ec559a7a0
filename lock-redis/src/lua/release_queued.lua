if ARGV[2] then
  bury(queue, ARGV[1], ARGV[2])
end
leave(queue, board, ARGV[1])
pass_on(lock, queue, board)
return mine
