"""What other programs take from a run: CPU time on its cores, time stolen by a hypervisor, quota used by others."""
