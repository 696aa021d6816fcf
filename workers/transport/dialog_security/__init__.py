"""Dialog security: keys and certificates, how a dialog is secured, sealing and opening of batches."""
