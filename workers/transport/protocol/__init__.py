"""What goes over the wire: frames, arrays, the handshake, sealed envelopes, errors. No I/O."""
