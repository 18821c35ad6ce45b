"""Population random measure embeddings (PRME) in Pyro: Bayesian nonparametric models with learned correlations."""

from pyro_prme.answers.export import to_inference_data, to_pyldavis
from pyro_prme.answers.held_out import held_out_bound, held_out_density
from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.estimator import PRMETopicModel
from pyro_prme.inference.build import build
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.data import Data, Rows, Tensors
from pyro_prme.inference.elbo import ClosedForm_ELBO
from pyro_prme.inference.fit import FitOptions, FitResult, fit
from pyro_prme.inference.gibbs import Gibbs
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.plan import Plan
from pyro_prme.inference.run import Run
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Bound, Trainer, TrainOptions
from pyro_prme.models.count_rows import NegativeBinomialPRME, PoissonPRME
from pyro_prme.models.diln import DILN
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.networks.encoders import BagOfWordsEncoder, TopicEncoder, encoder_of_depth
from pyro_prme.models.networks.layers import Decoder, decoder_of_depth
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.real_rows import BinaryPRME, GaussianPRME
from pyro_prme.models.simulation import simulate, simulate_corpus
from pyro_prme.models.topic_model import HDP, TopicModel
from pyro_prme.runs.run_folder import load_run, save_run

__version__ = "0.1.0"

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
    "save_run",
    "simulate",
    "simulate_corpus",
    "to_inference_data",
    "to_pyldavis",
]
