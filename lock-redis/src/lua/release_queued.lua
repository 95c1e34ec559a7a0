leave(queue, board, ARGV[1])
pass_on(lock, queue, board)
return mine
