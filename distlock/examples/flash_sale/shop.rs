//! The shop: for each product a book of sales, in a file that no lock protects.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Books, and receipts beside them.
pub(crate) struct Shop {
    folder: Folder,
    /// How many of each product there are.
    pub(crate) stock: usize,
}

enum Folder {
    Own(TempDir),
    Given(PathBuf),
}

/// One line of a book.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sale {
    pub(crate) buyer: String,
    pub(crate) token: u64,
}

/// What a book and its receipts say at the end.
#[derive(Debug)]
pub(crate) struct Audit {
    /// Lines in the book.
    pub(crate) sold: usize,
    /// Receipts whose sale is not in the book: somebody else wrote over it.
    pub(crate) lost: usize,
    /// Lines of a buyer who is in the book already.
    pub(crate) twice: usize,
    /// Lines whose fencing token is not greater than the one before.
    pub(crate) unfenced: usize,
}

impl Shop {
    pub(crate) fn open(folder: Option<PathBuf>, stock: usize) -> io::Result<Self> {
        let folder = match folder {
            Some(folder) => {
                fs::create_dir_all(&folder)?;
                Folder::Given(folder)
            }
            None => Folder::Own(TempDir::new()?),
        };
        Ok(Self { folder, stock })
    }

    /// The sales of a product so far.
    pub(crate) fn read(&self, product: usize) -> io::Result<Vec<Sale>> {
        sales(&self.book(product))
    }

    /// Puts a book in the place of the one that is there, whatever that may say by now. A book is whole at every moment, so that a buyer
    /// who is killed while writing leaves no half of one.
    pub(crate) fn write(&self, product: usize, book: &[Sale], writer: &str) -> io::Result<()> {
        let draft = self.path().join(format!("draft-{writer}"));
        let lines: String = book.iter().map(|sale| format!("{} {}\n", sale.buyer, sale.token)).collect();
        fs::write(&draft, lines)?;
        fs::rename(draft, self.book(product))
    }

    /// Gives the buyer a receipt. Receipts are only ever added, by which a sale that was written over comes to light.
    pub(crate) fn hand_out_receipt(&self, product: usize, sale: &Sale) -> io::Result<()> {
        let mut receipts = OpenOptions::new().create(true).append(true).open(self.receipts(product))?;
        receipts.write_all(format!("{} {}\n", sale.buyer, sale.token).as_bytes())
    }

    /// Lays the receipts beside the book.
    pub(crate) fn audit(&self, product: usize) -> io::Result<Audit> {
        // First, since another process may still sell: what has a receipt is in the book already.
        let receipts = sales(&self.receipts(product))?;
        let book = self.read(product)?;
        let lines: HashSet<_> = book.iter().collect();
        let buyers: HashSet<_> = book.iter().map(|sale| &sale.buyer).collect();
        Ok(Audit {
            sold: book.len(),
            lost: receipts.iter().filter(|receipt| !lines.contains(receipt)).count(),
            twice: book.len() - buyers.len(),
            unfenced: book.windows(2).filter(|pair| pair[1].token <= pair[0].token).count(),
        })
    }

    fn book(&self, product: usize) -> PathBuf {
        self.path().join(format!("book-{product}"))
    }

    fn receipts(&self, product: usize) -> PathBuf {
        self.path().join(format!("receipts-{product}"))
    }

    fn path(&self) -> &Path {
        match &self.folder {
            Folder::Own(folder) => folder.path(),
            Folder::Given(folder) => folder,
        }
    }
}

/// The sales in a file; none when there is no file yet.
fn sales(path: &Path) -> io::Result<Vec<Sale>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let sale = |line: &str| {
        let (buyer, token) = line.split_once(' ')?;
        Some(Sale { buyer: buyer.to_owned(), token: token.parse().ok()? })
    };
    let bad = || io::Error::other(format!("{}: not a list of sales; give --shop a folder of its own", path.display()));
    text.lines().map(|line| sale(line).ok_or_else(bad)).collect()
}
