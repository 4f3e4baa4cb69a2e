"""PPO as one writes it at first, to compare with: one loop, one environment object, actions from the GPU at every step.

    python perf/plain_ppo.py --seconds 15        # prints steps per second after the first update

The published Procgen recipe (config/ppo_paper.yaml): 64 environments × 256 steps, residual CNN, 3 epochs of 8
minibatches, Adam 5e-4, fp32, everything computed operation by operation; rewards are scaled once per rollout.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rlcb.config.environment import EnvConfig
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import make_env
from rlcb.networks import make_network

ENVS, STEPS, EPOCHS, MINIBATCH, GAMMA, LAMBDA = 64, 256, 3, 2048, 0.999, 0.95


def main() -> None:
    """Train for so many seconds and print the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    seconds = parser.parse_args().seconds
    env = make_env(EnvConfig(num_envs=ENVS), ENVS, seed=0, num_threads=4)
    policy = make_network("impala", EnvSpec((64, 64, 3), np.dtype(np.uint8), 15)).cuda()
    optimizer = torch.optim.Adam(policy.parameters(), 5e-4, eps=1e-5)
    observations = torch.zeros((STEPS, ENVS, 64, 64, 3), dtype=torch.uint8, device="cuda")
    actions = torch.zeros((STEPS, ENVS), dtype=torch.int64, device="cuda")
    log_probs, values, rewards, dones = (torch.zeros((STEPS, ENVS), device="cuda") for _ in range(4))
    begun, steps = 0.0, 0
    while not begun or time.perf_counter() - begun < seconds:
        for t in range(STEPS):
            observations[t] = torch.from_numpy(env.observe()).cuda()
            with torch.no_grad():
                logits, values[t] = policy(observations[t])
                log_policy = torch.log_softmax(logits, 1)
                actions[t] = torch.multinomial(log_policy.exp(), 1).squeeze(1)
                log_probs[t] = log_policy.gather(1, actions[t].unsqueeze(1)).squeeze(1)
            step = env.step(actions[t].cpu().numpy())
            rewards[t], dones[t] = torch.from_numpy(step.rewards).cuda(), torch.from_numpy(step.dones).cuda()
        with torch.no_grad():
            following = policy(torch.from_numpy(env.observe()).cuda())[1]
            advantages, carried = torch.zeros_like(rewards), torch.zeros(ENVS, device="cuda")
            scaled = rewards / (rewards.std() + 1e-8)
            for t in reversed(range(STEPS)):
                delta = scaled[t] + GAMMA * following * (1 - dones[t]) - values[t]
                advantages[t] = carried = delta + GAMMA * LAMBDA * (1 - dones[t]) * carried
                following = values[t]
        flat = [x.flatten(0, 1) for x in (observations, actions, log_probs, advantages, advantages + values)]
        for _ in range(EPOCHS):
            for index in torch.randperm(STEPS * ENVS, device="cuda").view(-1, MINIBATCH):
                seen, taken, old, advantage, target = (x[index] for x in flat)
                logits, value = policy(seen)
                log_policy = torch.log_softmax(logits, 1)
                ratio = (log_policy.gather(1, taken.unsqueeze(1)).squeeze(1) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                entropy = -(log_policy.exp() * log_policy).sum(1).mean()
                loss = -gain + 0.25 * (value - target).square().mean() - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        torch.cuda.synchronize()
        if begun:
            steps += STEPS * ENVS
        else:
            begun = time.perf_counter()  # the first update is warm-up
    print(f"{steps / (time.perf_counter() - begun):.0f}")


if __name__ == "__main__":
    main()
