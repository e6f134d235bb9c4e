"""What turns a command line into finished run folders: config, preparation, launch, worker, sweeps."""
