"""Node sessions in etcd: who is registered, their last loads, and the operators' policy.

It stores and watches; `controlplane.fleet` makes pools of what it shows.
"""
