"""A recipe for Spack. Put it into a repository of yours, as packages/py_asa_hpc/package.py; then

spack install py-asa-hpc +lab
"""

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyAsaHpc(PythonPackage):
    """Workflow-aware elastic execution for HPC: runs the stages of a workflow on a Slurm cluster inside one pool that
    spans several batch allocations, and asks for each stage's allocation before the stage before it has ended."""

    homepage = "https://arxiv.org/abs/2401.09706"

    license("Apache-2.0")

    # A release gives its archive: version("0.1.0", sha256=..., url=...). Until then: spack develop --path CHECKOUT
    version("0.1.0")

    variant("lab", default=False, description="Simulated queues, dispatchers, placement, studies")
    variant("plots", default=False, description="Reports as pictures")
    variant("dask", default=False, description="Dask workers as executor")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@68:", type="build")
    depends_on("py-cloudpickle@3.0:", type=("build", "run"))
    depends_on("py-cryptography@42:", type=("build", "run"))
    depends_on("py-httptools@0.6:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-requests@2.31:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-greenlet@3.1:", type=("build", "run"), when="+lab")
    depends_on("py-numba@0.59:", type=("build", "run"), when="+lab")
    depends_on("py-matplotlib@3.8:", type=("build", "run"), when="+plots")
    depends_on("py-distributed@2024.1:", type=("build", "run"), when="+dask")

    conflicts("platform=darwin", msg="ASA runs on Linux only")
    conflicts("platform=windows", msg="ASA runs on Linux only")
