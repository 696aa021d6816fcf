"""What anybody may send, made by a fuzzer that follows which branches it reaches."""
