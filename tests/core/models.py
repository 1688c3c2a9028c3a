"""Small models of the hard cases, written without the layer library: state, ties, sharing."""

import jax
import jax.numpy as jnp

from purestate import nn


class Dense(nn.Module):
    """A linear layer that counts its calls in a buffer."""

    def __init__(self, inputs: int, outputs: int, scale: float = 0.1):
        super().__init__()
        values = jnp.arange(inputs * outputs, dtype=jnp.float32).reshape(outputs, inputs)
        self.weight = nn.Parameter(scale * jnp.cos(values))
        self.bias = nn.Parameter(jnp.zeros(outputs))
        self.register_buffer("calls", jnp.zeros((), jnp.int32))

    def forward(self, x: jax.Array) -> jax.Array:
        self.calls = self.calls + 1
        return x @ self.weight.T + self.bias


class Noise(nn.Module):
    """Adds random numbers of its own key."""

    def forward(self, x: jax.Array) -> jax.Array:
        return x + jax.random.normal(self.next_key(), x.shape)


class Tied(nn.Module):
    """An encoder and a decoder that share one weight, and one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Dense(3, 3)
        self.decoder = Dense(3, 3)
        self.decoder.weight = self.encoder.weight
        self.again = self.encoder

    def forward(self, x: jax.Array) -> jax.Array:
        return self.again(self.decoder(self.encoder(x)))


class Deep(nn.Module):
    """A stack whose blocks are applied through JAX transforms inside forward."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.block = Dense(3, 3)

    def forward(self, x: jax.Array) -> jax.Array:
        import purestate as ps

        def body(block, h):
            h, block = ps.call(block, h)
            return block, h

        if self.how == "checkpoint":
            self.block, x = jax.checkpoint(body)(self.block, x)
        elif self.how == "jit":
            self.block, x = jax.jit(body)(self.block, x)
        elif self.how == "scan":
            (self.block, x), _ = jax.lax.scan(
                lambda carry, _: (body(*carry), None), (self.block, x), None, length=3
            )
        elif self.how == "vmap":
            x = jax.vmap(lambda h: ps.call(self.block, h)[0])(x)
        else:
            x = self.block(x)
        return x


class Leaky(nn.Module):
    """Writes a buffer where the write cannot get out."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.block = Dense(3, 3)

    def forward(self, x: jax.Array) -> jax.Array:
        if self.how == "checkpoint":
            return jax.checkpoint(lambda h: self.block(h))(x)
        if self.how == "scan":
            return jax.lax.scan(lambda h, _: (self.block(h), None), x, None, length=2)[0]
        if self.how == "vmap":
            return jax.vmap(self.block)(x)
        if self.how == "jit":
            return jax.jit(lambda h: self.block(h))(x)
        return jax.grad(lambda h: self.block(h).sum())(x)
