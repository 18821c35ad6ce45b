"""What the root of the package has, and from where; `__init__.py` imports each when it is first asked for."""

from .answers.export import to_inference_data, to_pyldavis
from .answers.held_out import held_out_bound, held_out_density
from .answers.posterior import Posterior
from .corpora.batch import Batch
from .corpora.corpus import Corpus
from .corpora.open_words import OpenWords
from .corpora.readers import load_corpus, save_corpus
from .corpora.splits import TokenSplit
from .estimator import PRMETopicModel
from .inference.build import build
from .inference.claims import Claim, Refusal, Rule
from .inference.data import Data, Rows, Tensors
from .inference.elbo import ClosedForm_ELBO
from .inference.fit import FitOptions, FitResult, fit
from .inference.gibbs import Gibbs
from .inference.guide import ClosedFormGuide
from .inference.options import RunOptions
from .inference.plan import Plan
from .inference.run import Run
from .inference.topic_guide import Counts, PRMEGuide
from .inference.trainer import Bound, Trainer, TrainOptions
from .models.count_rows import NegativeBinomialPRME, PoissonPRME
from .models.diln import DILN
from .models.factor_model import FactorModel
from .models.networks.encoders import BagOfWordsEncoder, TopicEncoder, encoder_of_depth
from .models.networks.layers import Decoder, decoder_of_depth
from .models.prme import PRME, ShapePRME
from .models.real_rows import BinaryPRME, GaussianPRME
from .models.simulation import simulate, simulate_corpus
from .models.topic_model import HDP, TopicModel
from .runs.mixing import save_mix
from .runs.run_folder import load_run, save_run

__version__: str
__all__ = [
    "DILN",
    "HDP",
    "PRME",
    "BagOfWordsEncoder",
    "Batch",
    "BinaryPRME",
    "Bound",
    "Claim",
    "ClosedFormGuide",
    "ClosedForm_ELBO",
    "Corpus",
    "Counts",
    "Data",
    "Decoder",
    "FactorModel",
    "FitOptions",
    "FitResult",
    "GaussianPRME",
    "Gibbs",
    "NegativeBinomialPRME",
    "OpenWords",
    "PRMEGuide",
    "PRMETopicModel",
    "Plan",
    "PoissonPRME",
    "Posterior",
    "Refusal",
    "Rows",
    "Rule",
    "Run",
    "RunOptions",
    "ShapePRME",
    "Tensors",
    "TokenSplit",
    "TopicEncoder",
    "TopicModel",
    "TrainOptions",
    "Trainer",
    "build",
    "decoder_of_depth",
    "encoder_of_depth",
    "fit",
    "held_out_bound",
    "held_out_density",
    "load_corpus",
    "load_run",
    "save_corpus",
    "save_mix",
    "save_run",
    "simulate",
    "simulate_corpus",
    "to_inference_data",
    "to_pyldavis",
]
