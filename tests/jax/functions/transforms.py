"""Fourier transforms, convolutions, signals, images."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import between, jax, jnp, normal, of, still

X, Y = normal(0, 6, 8), normal(1, 6, 8)
Z = X + 1j * Y
ROW, SHORT = normal(2, 21), normal(3, 5)
IMAGE = between(0, 1, 9, 11, 3)
fft, signal, image, ndimage = jnp.fft, jax.scipy.signal, jax.image, jax.scipy.ndimage
PLACES = np.stack([between(-2, 10, 13), between(-2, 12, 13, seed=1)])

CASES = {
    **{
        name: still(lambda z, name=name: getattr(fft, name)(z), Z)
        for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "irfft", "irfft2", "irfftn", "hfft")
    },
    **{name: of(lambda x, name=name: getattr(fft, name)(x), X) for name in ("rfft", "rfft2", "rfftn", "ihfft")},
    "fft of reals": of(lambda x: fft.fft(x, 5, axis=0, norm="ortho"), X),
    "ifft, forward": of(lambda x: fft.ifft(x, 12, norm="forward"), X),
    "rfft, odd": of(lambda x: fft.rfft(x, 7, axis=0), X),
    "irfft, odd": still(lambda z: fft.irfft(z, 9, norm="ortho"), Z),
    "irfft, slopes": of(lambda x, y: fft.irfft(jax.lax.complex(x, y), 14), X, Y),
    "fftn, axes": of(lambda x: fft.fftn(x[None] * jnp.ones((3, 1, 1)), s=(4, 5), axes=(0, 2)), X),
    "fft shifts": of(lambda x: (fft.fftshift(x), fft.ifftshift(x, 1)), X),
    "fft frequencies": of(lambda x: x + fft.fftfreq(8) + jnp.pad(fft.rfftfreq(8), (0, 3)), X),
    "power of a spectrum": still(lambda x: jnp.abs(fft.fft(x * x)) ** 2, X),
    "filter in frequencies": of(lambda x: fft.irfft(fft.rfft(x) * jnp.exp(-jnp.arange(5.0))), X),
    **{
        f"convolve, {mode}": of(lambda a, b, mode=mode: jnp.convolve(a, b, mode), ROW, SHORT)
        for mode in ("full", "same", "valid")
    },
    "correlate": of(lambda a, b: jnp.correlate(a, b, "full"), ROW, SHORT),
    "convolve of complex numbers": still(lambda a, b: jnp.convolve(a + 1j * a, b - 2j * b), ROW, SHORT),
    **{
        f"signal.convolve, {method}": of(lambda a, b, method=method: signal.convolve(a, b, "same", method), ROW, SHORT)
        for method in ("direct", "fft")
    },
    "signal.correlate": of(signal.correlate, ROW, SHORT),
    "signal.convolve2d": of(lambda a, b: signal.convolve2d(a, b[:3, :2], mode="same"), X, Y),
    "signal.correlate2d": of(lambda a, b: signal.correlate2d(a, b[:3, :2]), X, Y),
    "signal.fftconvolve": of(lambda a, b: signal.fftconvolve(a, b[:3, :2]), X, Y),
    "signal.detrend": of(signal.detrend, X),
    "signal.stft": still(lambda a: signal.stft(a, nperseg=8), ROW),
    "signal.istft": still(lambda a: signal.istft(signal.stft(a, nperseg=8)[2], nperseg=8), normal(3, 40)),
    "signal.csd": still(lambda a, b: signal.csd(a, b, nperseg=8), ROW, ROW**2),
    "signal.welch": still(lambda a: signal.welch(a, nperseg=8), ROW),
    **{
        f"resize, {method}": of(lambda x, method=method: image.resize(x, (5, 17, 3), method), IMAGE)
        for method in ("nearest", "linear", "cubic", "lanczos3", "lanczos5")
    },
    "resize, not antialiased": of(lambda x: image.resize(x, (4, 4, 3), "linear", antialias=False), IMAGE),
    "scale_and_translate": of(
        lambda x, s, t: image.scale_and_translate(x, (6, 6, 3), (0, 1), s, t, "linear"),
        *(IMAGE, np.array([0.5, 0.7], np.float32), np.array([0.3, 0.1], np.float32)),
        tolerance=1e-3,
    ),
    **{
        f"map_coordinates, {mode}": of(
            lambda x, at, mode=mode: ndimage.map_coordinates(x, [at[0], at[1]], order=1, mode=mode),
            IMAGE[:, :, 0],
            PLACES,
        )
        for mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    },
    "map_coordinates, nearest": of(
        lambda x, at: ndimage.map_coordinates(x, [at[0], at[1]], order=0), IMAGE[..., 0], PLACES
    ),
    "dct": of(lambda x: (jax.scipy.fft.dct(x), jax.scipy.fft.dctn(x)), X),
    "idct": of(lambda x: (jax.scipy.fft.idct(x, norm="ortho"), jax.scipy.fft.idctn(x)), X),
    "hann": of(
        lambda x: x * jnp.hanning(8) + jnp.hamming(8) + jnp.blackman(8) + jnp.bartlett(8) + jnp.kaiser(8, 3.0), X
    ),
    "interpolator": of(
        lambda f, p: jax.scipy.interpolate.RegularGridInterpolator((jnp.arange(6.0), jnp.arange(8.0)), f)(p.T),
        X,
        np.clip(PLACES, 0, 4.9),
    ),
    "trapezoid": of(lambda x: jax.scipy.integrate.trapezoid(x, dx=0.1), X),
}
